// Package budget decides what an agent gives up so that the host that it watches pays no more than
// its user said, and when it takes that up again. It does nothing itself.
package budget
