// Package report reports what recordings show: how regular the samples were, when each container was
// busy, and the short saturations: a resource of a container at its limit for 10 ms to 1 s, what
// waited meanwhile, and who took the CPU. All of it is pure functions of recordings; formulas are at
// the functions.
package report
