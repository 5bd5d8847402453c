// Package pull reads the regions of hosts (docs/region.md) at a pace of its own, and makes frames of what they say: frames
// as agents send them. Several servers may share the hosts among them: see Group.
package pull
