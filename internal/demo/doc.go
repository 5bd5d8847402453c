// Package demo is a small shop of real software, and the launcher that runs it in containers:
// a load generator, nginx, a gateway, a catalogue, a cart, a payment service, Redis and a worker.
//
// Two of its services have a known fault, so that there is something to find: payment does its
// work in one thread at 3 ms of CPU time per request, and the catalogue stands still for 80 ms
// every few seconds.
//
// Every Go service counts its own connections, requests and bytes where it calls the operating
// system, so that what Outsight sees from the outside can be compared with what really happened
// (Shop.Truth). The launcher uses Docker where a daemon answers, and control groups and network
// namespaces that it makes itself where none does. It removes all that it made.
package demo
