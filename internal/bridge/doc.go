// Package bridge makes bridges in network namespaces of their own, with cables to processes.
package bridge
