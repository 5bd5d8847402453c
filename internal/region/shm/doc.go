// Package shm hands the regions of a host to readers on the same host, as descriptors of the kernel's maps that can only
// be read, and reads them: the process that counts need not run.
package shm
