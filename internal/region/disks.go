package region

import "outsight/internal/model"

// DiskFigures are those of a control group on a device, or of the files that it had synchronised.
type DiskFigures struct {
	// Number distinguishes records, also those that follow each other at one index.
	Number uint64
	// Group in the hierarchy of model.CgroupID, 0 where that is not known; BlockGroup in that of block I/O, 0 for requests
	// that are nobody's.
	Group      model.CgroupID
	BlockGroup uint64
	Device     model.BlockDevice
	// Syncs says that it is of synchronised files. It has no device.
	Syncs   bool
	Figures Figures
}

// syncDevice is a disk's key.device where its record is of synchronised files.
const syncDevice = ^uint64(0)

// isOfSyncs says of a disk's record that it is of synchronised files.
func (t *table) isOfSyncs(b []byte) bool { return t.keys.number(b, "key.device") == syncDevice }

// disk is a record without its figures.
func (t *table) disk(b []byte) DiskFigures {
	d := DiskFigures{Number: t.parts.generation.number(b, 0), Group: model.CgroupID(t.keys.number(b, "owner")),
		BlockGroup: t.keys.number(b, "key.group"), Syncs: t.isOfSyncs(b)}
	if !d.Syncs {
		n := t.keys.number(b, "key.device")
		d.Device = model.BlockDevice{Major: uint32(n >> 32), Minor: uint32(n), Name: textOf(t.keys.text(b, "name"))}
	}
	return d
}
