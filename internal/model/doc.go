// Package model holds the nouns that cross a boundary of Outsight: containers, edges, kernel
// counters, histograms and the snapshot in which the agent hands them on. It imports nothing
// else of the project.
//
// Every value in it is immutable once it has been handed to another package. Counters are
// cumulative and only grow; a reader takes differences. Units are the last word of a name
// (UsageNS, SentBytes) and absent groups of numbers are nil pointers, never zeros.
package model
