// Package predict tells from what a resource took at different loads what it will take at others. All are pure
// functions; each answer has the interval in which the truth is with nine chances of ten, if the resource goes on as it
// did.
package predict
