// Package derive makes series for PromQL of the frames of many hosts. Frames are what is kept; series are a view of them
// at an interval of their own. Nothing here holds up who brings frames: what cannot be kept up with is left out and
// counted. A series has a gap then, and the next frame of the host has all that was counted meanwhile. What is computed
// of many frames and hosts becomes series by a Follower.
package derive
