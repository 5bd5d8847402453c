package region

import (
	"context"

	"outsight/internal/model"
)

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

// readDisks finds the disks that there are, at a thorough reading.
func (c *Collector) readDisks(ctx context.Context) (map[uint32]*DiskFigures, map[uint32]Figures, records, error) {
	found, figures := map[uint32]*DiskFigures{}, map[uint32]Figures{}
	if c.disks == nil || !c.thorough {
		return found, figures, records{}, nil
	}
	read, err := c.look(ctx, c.disks)
	if err != nil {
		return nil, nil, records{}, err
	}
	r := c.disks.region
	number, group, device := r.field(RoleGeneration, ""), r.field(RoleKey, "key.group"), r.field(RoleKey, "key.device")
	owner, name := r.field(RoleKey, "owner"), r.field(RoleKey, "name")
	if number == nil || group == nil || device == nil || owner == nil || name == nil || name.Type != TypeText {
		return found, figures, records{}, nil // disks of a kind that this program does not know
	}
	for _, index := range c.disks.used {
		b := read.of[index]
		d := &DiskFigures{Number: number.number(b, 0), Group: model.CgroupID(owner.number(b, 0)), BlockGroup: group.number(b, 0)}
		if d.Number == 0 {
			continue // not all of it is written yet
		}
		if n := device.number(b, 0); n == syncDevice {
			d.Syncs = true
		} else {
			d.Device = model.BlockDevice{Major: uint32(n >> 32), Minor: uint32(n),
				Name: textOf(b[name.Offset : name.Offset+uint32(name.Count)])}
		}
		found[index], figures[index] = d, Figures{}
	}
	return found, figures, read, nil
}
