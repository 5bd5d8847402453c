package region

// Version of the layout. A reader refuses a higher one: what is added without a new version are fields at the end of
// entries, and values of enumerations, which a reader skips.
const Version = 1

// The regions that are always there.
const (
	ControlID    = 0
	DictionaryID = 1
	// FirstDataID is the first of the regions in which the kernel counts.
	FirstDataID = 2
	// FirstFileID is the first of the parts of files with applications' own metrics. They are not in the control region.
	FirstFileID = 1 << 16
)

// ControlBytes is the size of the control region of this writer. Readers take it from the header.
const ControlBytes = 64 << 10

// The magic numbers with which the two regions begin.
var (
	controlMagic    = [8]byte{'O', 'S', 'R', 'E', 'G', 'I', 'O', 'N'}
	dictionaryMagic = [8]byte{'O', 'S', 'R', 'N', 'A', 'M', 'E', 'S'}
	// applicationsMagic begins the list of applications' own metrics.
	applicationsMagic = [8]byte{'O', 'S', 'R', 'A', 'P', 'P', 'L', 'S'}
)

// Offsets of words in the two headers: the generations are written apart from the others.
const (
	generationOffset           = 16
	dictionaryGenerationOffset = 24
	usedOffset                 = 56
	dictionaryUsedOffset       = 24
)

// None stands for no index.
const None = 0xffffffff

// none16 stands for no metric.
const none16 = 0xffff

// Index is what an index into a region is of.
type Index uint16

// The indexes.
const (
	// IndexNone is of regions without records: control and dictionary.
	IndexNone Index = iota
	// IndexSlot is the slot of a control group.
	IndexSlot
	// IndexEdge is that of an edge.
	IndexEdge
	// IndexPool is an index that fields of other regions hold.
	IndexPool
	// IndexCPU is the number of a CPU.
	IndexCPU
	// IndexFigures is the place of a container's figures, which the dictionary has.
	IndexFigures
	// IndexDisk is a pair of a control group and a device.
	IndexDisk
	// IndexEndpoint is what requests of an edge ask for.
	IndexEndpoint
	// IndexApplications is of the region that lists applications' own metrics, which has no records either.
	IndexApplications
)

// Fill is who writes the records of a region.
type Fill uint16

// Who writes.
const (
	// FillKernel: kernel programs when something happens. No process of the host need run.
	FillKernel Fill = iota
	// FillAgent: a kernel program that the agent runs at each of its readings. While it sleeps they stand still.
	FillAgent
)

// Type of a field.
type Type uint8

// The types. TypeText is padded with zeros, TypeAddress 16 bytes of IPv6 in network order (IPv4 is mapped).
const (
	TypeU64 Type = iota + 1
	TypeU32
	TypeU16
	TypeU8
	TypeS64
	TypeText
	TypeAddress
)

// size of one value in bytes.
func (t Type) size() int {
	switch t {
	case TypeU64, TypeS64:
		return 8
	case TypeU32:
		return 4
	case TypeU16:
		return 2
	case TypeAddress:
		return 16
	}
	return 1
}

// isNumber says that values of the type are numbers.
func (t Type) isNumber() bool { return t >= TypeU64 && t <= TypeS64 }

// Role is what a field is for.
type Role uint8

// The roles.
const (
	// RoleOther has none for a collector.
	RoleOther Role = iota
	// RoleCounter only grows while the record has an owner; RoleGauge does not.
	RoleCounter
	RoleGauge
	// RoleOwner is 0 while the record is free.
	RoleOwner
	// RoleKey is a part of what identifies the record's owner.
	RoleKey
	// RoleSum is the sum, in ns, of a histogram in the region Field.Refers.
	RoleSum
	// RoleCells are the counts of a histogram, see docs/format/histogram.md.
	RoleCells
	// RoleReference is an index into the region Field.Refers, 0 for none.
	RoleReference
	// RoleHead and RoleTail are equal when all between them is of one moment.
	RoleHead
	RoleTail
	// RoleKnown has a bit for each of the fields that are there: Field.Mask.
	RoleKnown
	// RoleGeneration changes when the record gets another owner; of disks and endpoints it is 0 until it has one.
	RoleGeneration
	// RoleBegun counts the records of the region Field.Refers that have begun to have an owner, ever, and RoleBegunRecords
	// has the last of them: number n at n modulo Field.Count, n in the upper 32 bits and the record's index in the lower.
	RoleBegun
	RoleBegunRecords
	// RoleLess is taken away from the gauge of the same metric, which is not less than 0.
	RoleLess
	// RoleDatagrams is that gauge of an edge of UDP, whatever other fields say.
	RoleDatagrams
)

// isFigure says that a field of the role is a part of a figure.
func (r Role) isFigure() bool {
	switch r {
	case RoleCounter, RoleGauge, RoleSum, RoleLess, RoleDatagrams:
		return true
	}
	return false
}

// header begins the control region.
type header struct {
	Magic                [8]byte
	Version, HeaderBytes uint32
	Generation           uint64
	DictionaryGeneration uint64
	EpochNS              uint64
	MonotonicNS, WallNS  uint64
	UsedBytes            uint32
	RegionBytes          uint32
	Regions, Fields      array
	Metrics              array
	CPUs                 uint32
	TrustedFigures       uint32
	Unused               uint32
	BootID               [48]byte
	Host                 [96]byte
}

// array says where entries are: how many, the offset of the first, and the size of each.
type array struct{ Count, Offset, EntryBytes uint32 }

type regionEntry struct {
	Name                        [32]byte
	ID                          uint32
	Index, Fill                 uint16
	RecordBytes, Records, Lanes uint32
	FirstField, Fields          uint32
	Unused                      uint32
	Generation, Key             uint64
}

type fieldEntry struct {
	Name                 [32]byte
	Offset               uint32
	Type, Role           uint8
	Count                uint16
	Refers, Via, Mask    uint32
	Metric, ServerMetric uint16
	Unused               uint64
}

type metricEntry struct {
	Name                  [80]byte
	Unit                  [24]byte
	LabelName, LabelValue [24]byte
	Per                   uint64
}

// dictionaryHeader begins the dictionary.
type dictionaryHeader struct {
	Magic                  [8]byte
	Version, HeaderBytes   uint32
	Generation             uint64
	UsedBytes, RegionBytes uint32
	Containers, Groups     array
	LeftOut                uint32
	Unused                 uint32
}

// text is a place in the dictionary.
type text struct{ Offset, Length uint32 }

type containerEntry struct {
	ID, Name, Image, Runtime, Pod, Namespace, Workload, Addresses text
	Figures, Unused                                               uint32
	StartedNS                                                     uint64
}

type groupEntry struct {
	Cgroup            uint64
	Container, Unused uint32
}

// applicationsHeader begins the list of applications' own metrics. Its first words are in the places of those of the
// dictionary's.
type applicationsHeader struct {
	Magic                  [8]byte
	Version, HeaderBytes   uint32
	Generation             uint64
	UsedBytes, RegionBytes uint32
	Files, Values, Metrics array
	LeftOut                uint32
}

type fileEntry struct {
	ID, Bytes          uint32
	FirstValue, Values uint32
	Cgroup             uint64
	Process, Key       uint32
	Address            uint64
}

type valueEntry struct {
	Offset, Metric uint32
	Type           uint8
	Unused         [3]uint8
}

type applicationEntry struct {
	Container, Name, Labels, Unit, Help text
	Ended                               uint64
	Kind, Fine                          uint8
	Unused                              [6]uint8
}
