package region

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"outsight/internal/model"
)

// Writer keeps the control region and the dictionary up to date. It writes only what has changed. It is for one
// goroutine.
type Writer struct {
	control, dictionary []byte
	now                 Control
	// written are the two as they are in memory, with the generation 0.
	writtenControl, writtenDictionary []byte
	generation                        uint64
}

// NewWriter writes the control region, and an empty dictionary, into two regions, which must begin at a multiple of 8,
// have a size that is one, and be all zeros. Of c the generations are set here.
func NewWriter(control, dictionary []byte, c Control) (*Writer, error) {
	if len(control) < ControlBytes || len(dictionary) < DictionaryBytes(0) || len(dictionary)%8 != 0 {
		return nil, fmt.Errorf("BUG: regions of %d and %d bytes, want at least %d and %d", len(control), len(dictionary),
			ControlBytes, DictionaryBytes(0))
	}
	w := &Writer{control: control[:ControlBytes], dictionary: dictionary, now: c}
	own := []Region{{Name: "control", ID: ControlID, RecordBytes: 8, Records: ControlBytes / 8, Lanes: 1, Generation: 1},
		{Name: "dictionary", ID: DictionaryID, RecordBytes: 8, Records: uint32(len(dictionary) / 8), Lanes: 1, Generation: 1}}
	w.now.Regions = append(own, w.now.Regions...)
	w.now.Generation, w.now.DictionaryGeneration = 0, 0
	w.writeDictionary(&Dictionary{}, nil)
	return w, w.writeControl()
}

// Names are what the dictionary is made of.
type Names struct {
	Containers []Container
	// Groups are the control groups that count, with the ID of their container.
	Groups map[model.CgroupID]string
	// TrustedFigures is Control.TrustedFigures.
	TrustedFigures uint32
}

// Update writes names, if they are others than before, and tells how many found no room.
func (w *Writer) Update(n Names, monotonicNS, wallNS uint64) (leftOut int, err error) {
	index := make(map[string]uint32, len(n.Containers))
	for i, c := range n.Containers {
		index[c.ID] = uint32(i)
	}
	groups := make([]groupEntry, 0, len(n.Groups))
	for id, of := range n.Groups {
		if at, known := index[of]; known {
			groups = append(groups, groupEntry{Cgroup: uint64(id), Container: at})
		}
	}
	slices.SortFunc(groups, func(a, b groupEntry) int { return cmp.Compare(a.Cgroup, b.Cgroup) })
	leftOut = w.writeDictionary(&Dictionary{Containers: n.Containers}, groups)
	// The clocks drift apart all the time: only a step of the wall clock is a change.
	before, now := w.now.WallNS-w.now.MonotonicNS, wallNS-monotonicNS
	if step := int64(now - before); step > clockStep || step < -clockStep {
		w.now.WallNS, w.now.MonotonicNS = wallNS, monotonicNS
	}
	w.now.TrustedFigures = n.TrustedFigures
	return leftOut, w.writeControl()
}

// clockStep is by how many ns the clocks may differ from what the control region says.
const clockStep = 1e6

func (w *Writer) writeControl() error {
	// The dictionary's generation is a word of its own: its change is none of the control region.
	plain := w.now
	plain.Generation, plain.DictionaryGeneration = 0, 0
	body, err := plain.encode()
	if err != nil || bytes.Equal(body, w.writtenControl) {
		return err
	}
	w.writtenControl = body
	w.generation++
	w.now.Generation = w.generation
	if body, err = w.now.encode(); err == nil {
		publish(w.control, body)
	}
	return err
}

func (w *Writer) writeDictionary(d *Dictionary, groups []groupEntry) (leftOut int) {
	d.Generation = 0
	body := d.encode(groups, len(w.dictionary))
	leftOut = d.LeftOut
	if bytes.Equal(body, w.writtenDictionary) {
		return leftOut
	}
	w.writtenDictionary = body
	w.now.DictionaryGeneration++
	d.Generation = w.now.DictionaryGeneration
	publish(w.dictionary, d.encode(groups, len(w.dictionary)))
	publishWord(w.control, dictionaryGenerationOffset, d.Generation)
	return leftOut
}
