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

// diskOf is a record without its figures.
func (c *Collector) diskOf(b []byte) DiskFigures {
	t := c.disks.table
	number := func(name string) uint64 {
		if f := t.region.key(name); f != nil {
			return f.number(b, 0)
		}
		return 0
	}
	d := DiskFigures{Number: t.parts.generation.number(b, 0), Group: model.CgroupID(number("owner")),
		BlockGroup: number("key.group")}
	n := number("key.device")
	if d.Syncs = n == syncDevice; d.Syncs {
		return d
	}
	d.Device = model.BlockDevice{Major: uint32(n >> 32), Minor: uint32(n)}
	if f := t.region.key("name"); f != nil && f.Type == TypeText {
		d.Device.Name = textOf(b[f.Offset : f.Offset+uint32(f.Count)])
	}
	return d
}

// key is a field of a record's key by its name, nil where there is none.
func (r *Region) key(name string) *Field {
	for i := range r.Fields {
		if f := &r.Fields[i]; f.Role == RoleKey && f.Name == name {
			return f
		}
	}
	return nil
}
