package host

import "outsight/internal/model"

// Module is one subject of what is counted: its kernel programs, their maps, and who reads them. A Loader in it
// does the half of this. What others read of it are methods of its own.
type Module interface {
	// Hooks are what it may attach to, for who has to say that nothing of it can be had.
	Hooks() []Hook
	// Open loads and attaches. What the kernel refuses is a feature that is absent, and no end of the rest.
	Open(*Kernel) error
	// Parts are what its programs belong to; those that are not fixed can be given up while the rest goes on.
	Parts() []Part
	// Features tells of each program whether it works here.
	Features() []model.Feature
	// Drops lists its bounded tables with what found no room in them.
	Drops() []model.Drop
	// Forget gives up what is kept of a control group that was removed.
	Forget(model.CgroupID)
	// Programs are loaded, and Attachments are the holds of those that have a hook.
	Programs() []LoadedProgram
	Attachments() []*Attachment
	AddFeature(Hook, error)
	// Close detaches and unloads everything.
	Close() error
}
