// Package stamp speaks the Simple Two-way Active Measurement Protocol: packets, a session sender and a reflector of RFC
// 8762, with the extensions of RFC 8972 that carry a session's number, class of service, direct measurement and how
// clocks are kept. The reflector answers TWAMP-Light senders (RFC 5357, appendix I), whose packets have the same form,
// and the sender measures against TWAMP-Light reflectors.
//
// It imports nothing of the project.
package stamp
