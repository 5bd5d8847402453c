// Package disks sums what control groups did on block devices to what containers did.
package disks
