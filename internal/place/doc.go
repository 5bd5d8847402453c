// Package place says where containers would better run: it finds a placement on hosts that costs less than the present
// one, within what hosts have and what is ruled, and the moves that lead there. Its functions are pure, and give the same
// answer for the same problem.
package place
