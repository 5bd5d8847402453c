// Package attacks runs the built server under the memory limit of its manifest, lets one tenant attack it in every
// known way at once, and holds what another tenant meets meanwhile against what it was promised. It takes some minutes
// and belongs to the long lane: make test-attacks.
package attacks
