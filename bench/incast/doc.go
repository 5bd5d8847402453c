// Package incast simulates a controller that reads the memory of many hosts at once over one link: the incast problem of
// paper 004 (Zero Overhead Monitoring for Cloud-native Infrastructure using RDMA, section 4.3). All replies meet in the
// queue of one switch port. The policies say how much may be on the way: no limit, BDP-FC, Credit-FC, and Paced.
//
// It is a simulation of discrete events: packets, a switch with a shared buffer, dynamic thresholds, ECN marks and PFC
// pauses, network cards with a bounded cache of connections, and one thread that posts requests and polls completions.
// Senders do not react to ECN marks: what is marked is what would have made them slow down. The same Setup gives the same
// Result, event by event. It imports nothing of Outsight's.
package incast
