package host

import "outsight/internal/model"

// Module is one subject of what is counted: its kernel programs, their maps, and who reads them. A Loader in it
// does a part of this. What others read of it are methods of its own.
type Module interface {
	// Hooks are what it may attach to, for when nothing of it can be had.
	Hooks() []Hook
	// Open loads and attaches. What the kernel refuses is a feature that is absent, and does not end the others.
	Open(*Kernel) error
	// Parts are what its programs belong to; those that are not fixed can be shed while the others go on.
	Parts() []Part
	// Features tells of each program whether it works here.
	Features() []model.Feature
	// Drops lists its bounded tables with what found no room in them.
	Drops() []model.Drop
	// Forget releases what is kept of a control group that was removed.
	Forget(model.CgroupID)
	// Programs are loaded, and Attachments are of those that have a hook.
	Programs() []LoadedProgram
	Attachments() []*Attachment
	AddFeature(Hook, error)
	// Close detaches and unloads everything.
	Close() error
}
