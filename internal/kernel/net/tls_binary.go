package net

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"go/version"
	"io"
	"slices"

	"golang.org/x/arch/x86/x86asm"
)

// Whoever runs a container makes its files, and one with holes may claim any size. debug/elf is made for files that one
// trusts, so what it would take into memory is bounded before: it copies the name of each section.
const (
	// maxTLSFile bounds the binaries that are looked at, maxTLSTable each table of symbols and names in them.
	maxTLSFile, maxTLSTable = 1 << 30, 32 << 20
	// maxTLSHeaders bounds what is read of a file apart from these tables.
	maxTLSHeaders = 4 << 20
	// Linkers make a few dozen sections, whose names take less than 1 KiB, and a dozen segments.
	maxTLSSections, maxTLSSectionNames, maxTLSSegments = 512, 16 << 10, 128
	// maxTLSSymbols bounds symbols of one name, and indexes in the table of names where it stands.
	maxTLSSymbols = 16
	// maxBinaryProbes bounds the probes at a binary: OpenSSL takes 8, a Go program about 20.
	maxBinaryProbes = 64
)

// errNoTLS says that a binary has nothing to be probed.
var errNoTLS = errors.New("it does not use TLS")

// errTLSTooLarge says that a binary has more of something than is read or probed.
var errTLSTooLarge = errors.New("it is too large")

func tooLarge(what string, got, most uint64) error {
	return fmt.Errorf("%w: %s %d, want %d at most", errTLSTooLarge, what, got, most)
}

// boundedReader reads a file until it has read so much, or is told to stop.
type boundedReader struct {
	file io.ReaderAt
	left int64
	stop <-chan struct{}
}

func (b *boundedReader) ReadAt(p []byte, at int64) (int, error) {
	select {
	case <-b.stop:
		return 0, errStopped
	default:
	}
	if int64(len(p)) > b.left {
		return 0, fmt.Errorf("%w: more than %d bytes of it would be read", errTLSTooLarge, b.left)
	}
	n, err := b.file.ReadAt(p, at)
	b.left -= int64(n)
	return n, err
}

// bounded is a reader of the same file with another bound.
func (b *boundedReader) bounded(most int64) *boundedReader {
	return &boundedReader{b.file, most, b.stop}
}

// openBinary reads the headers of a program or library of this machine's kind.
func openBinary(r io.ReaderAt) (*elf.File, error) {
	var h elf.Header64
	if err := binary.Read(io.NewSectionReader(r, 0, 64), binary.LittleEndian, &h); err != nil {
		return nil, errNoTLS
	}
	if string(h.Ident[:4]) != elf.ELFMAG || elf.Class(h.Ident[elf.EI_CLASS]) != elf.ELFCLASS64 ||
		elf.Data(h.Ident[elf.EI_DATA]) != elf.ELFDATA2LSB || h.Shnum == 0 || h.Shstrndx >= h.Shnum || h.Shentsize != 64 {
		return nil, errNoTLS
	}
	if h.Shnum > maxTLSSections {
		return nil, tooLarge("its number of sections is", uint64(h.Shnum), maxTLSSections)
	}
	if h.Phnum > maxTLSSegments {
		return nil, tooLarge("its number of segments is", uint64(h.Phnum), maxTLSSegments)
	}
	var names elf.Section64
	at := int64(h.Shoff) + int64(h.Shstrndx)*64
	if err := binary.Read(io.NewSectionReader(r, at, 64), binary.LittleEndian, &names); err != nil {
		return nil, fmt.Errorf("reading the header of the sections' names: %w", err)
	}
	if names.Size > maxTLSSectionNames {
		return nil, tooLarge("the bytes of its sections' names are", names.Size, maxTLSSectionNames)
	}
	return elf.NewFile(r)
}

// symbol is a function in a binary.
type symbol struct {
	name        string
	value, size uint64
}

// findSymbols finds the symbols of these names. The tables go through a buffer, because they are large.
func findSymbols(r io.ReaderAt, f *elf.File, kind elf.SectionType, names []string) ([]symbol, error) {
	i := slices.IndexFunc(f.Sections, func(s *elf.Section) bool { return s.Type == kind })
	if i < 0 {
		return nil, elf.ErrNoSymbols
	}
	table := f.Sections[i]
	if table.Link == 0 || uint64(table.Link) >= uint64(len(f.Sections)) {
		return nil, fmt.Errorf("the names of %q are in section %d, which is not there", table.Name, table.Link)
	}
	strings := f.Sections[table.Link]
	for _, s := range []*elf.Section{table, strings} {
		if s.FileSize > maxTLSTable {
			return nil, tooLarge(fmt.Sprintf("the bytes of its section %q are", s.Name), s.FileSize, maxTLSTable)
		}
		if s.Type == elf.SHT_NOBITS || s.Flags&elf.SHF_COMPRESSED != 0 {
			return nil, fmt.Errorf("its section %q cannot be read", s.Name)
		}
	}
	wanted, err := findNames(io.NewSectionReader(r, int64(strings.Offset), int64(strings.FileSize)), names)
	if err != nil {
		return nil, fmt.Errorf("reading %q: %w", strings.Name, err)
	}
	found, err := findNamed(io.NewSectionReader(r, int64(table.Offset), int64(table.FileSize)), wanted)
	if err != nil {
		return nil, fmt.Errorf("reading %q: %w", table.Name, err)
	}
	return found, nil
}

const tlsBuffer = 64 << 10

// findNames finds where names stand in a table of strings. A name may be the end of a longer one.
func findNames(r io.Reader, names []string) (map[uint32]string, error) {
	wanted := make(map[uint32]string)
	buffer := make([]byte, 0, tlsBuffer)
	begin := 0 // of the buffer in the table
	for {
		n, err := r.Read(buffer[len(buffer):cap(buffer)])
		buffer = buffer[:len(buffer)+n]
		for _, name := range names {
			text := []byte(name + "\x00")
			for at := 0; ; {
				i := bytes.Index(buffer[at:], text)
				if i < 0 {
					break
				}
				wanted[uint32(begin+at+i)] = name
				if len(wanted) > maxTLSSymbols*len(names) {
					return nil, tooLarge(fmt.Sprintf("names like %q are", name), uint64(len(wanted)), uint64(maxTLSSymbols*len(names)))
				}
				at += i + len(text)
			}
		}
		if errors.Is(err, io.EOF) {
			return wanted, nil
		}
		if err != nil {
			return nil, err
		}
		// What may be the beginning of a name stays.
		keep := min(len(buffer), 64)
		begin += len(buffer) - keep
		buffer = buffer[:copy(buffer, buffer[len(buffer)-keep:])]
	}
}

// findNamed finds the defined symbols whose names stand at these offsets.
func findNamed(r io.Reader, wanted map[uint32]string) ([]symbol, error) {
	var found []symbol
	buffer := make([]byte, tlsBuffer/elf.Sym64Size*elf.Sym64Size)
	for {
		n, err := io.ReadFull(r, buffer)
		for at := 0; at+elf.Sym64Size <= n; at += elf.Sym64Size {
			entry, order := buffer[at:at+elf.Sym64Size], binary.LittleEndian
			name, ok := wanted[order.Uint32(entry)]
			if !ok || elf.SectionIndex(order.Uint16(entry[6:])) == elf.SHN_UNDEF {
				continue
			}
			found = append(found, symbol{name, order.Uint64(entry[8:]), order.Uint64(entry[16:])})
			if len(found) > maxTLSSymbols {
				return nil, tooLarge(fmt.Sprintf("symbols like %q are", name), uint64(len(found)), maxTLSSymbols)
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// keys are the names of the functions of a library.
func (l tlsLibrary) keys() []string {
	var names []string
	for name := range l.functions {
		names = append(names, name)
	}
	return names
}

// openSSLFunctions finds the functions of libssl: those that the version has.
func openSSLFunctions(r *boundedReader) ([]tlsFunction, error) {
	f, err := openBinary(r.bounded(maxTLSHeaders))
	if err != nil {
		return nil, err
	}
	symbols, err := findSymbols(r, f, elf.SHT_DYNSYM, openSSL.keys())
	if err != nil {
		return nil, err
	}
	var found []tlsFunction
	for _, s := range symbols {
		offset, ok := fileOffset(f, s.value)
		if !ok {
			return nil, fmt.Errorf("%s is in no part of the file that is executed", s.name)
		}
		pair := openSSL.functions[s.name]
		found = append(found, tlsFunction{pair[0], offset, false}, tlsFunction{pair[1], offset, true})
	}
	if len(found) == 0 {
		return nil, errNoTLS
	}
	return found, nil
}

// registerCalls is the first version of Go that passes arguments in registers.
const registerCalls = "go1.17"

// goFunctions finds crypto/tls in a Go program. A return address that the kernel changes would
// confuse Go's stack, so the ends of its functions are found by reading their instructions.
func goFunctions(r *boundedReader) ([]tlsFunction, error) {
	f, err := openBinary(r.bounded(maxTLSHeaders))
	if errors.Is(err, errTLSTooLarge) {
		return nil, err
	}
	if err != nil {
		return nil, errNoTLS // a script's interpreter is looked at itself
	}
	if f.Section(".go.buildinfo") == nil || f.Machine != elf.EM_X86_64 {
		return nil, errNoTLS
	}
	info, err := buildinfo.Read(r.bounded(maxTLSHeaders))
	if err != nil {
		return nil, err
	}
	if version.Compare(info.GoVersion, registerCalls) < 0 {
		return nil, fmt.Errorf("it was built by %.32q, want %s or later", info.GoVersion, registerCalls)
	}
	symbols, err := findSymbols(r, f, elf.SHT_SYMTAB, goTLS.keys())
	if errors.Is(err, elf.ErrNoSymbols) {
		return nil, errors.New("a Go program without symbols")
	}
	if err != nil {
		return nil, err
	}
	var found []tlsFunction
	for _, s := range symbols {
		offset, ok := fileOffset(f, s.value)
		if !ok {
			return nil, fmt.Errorf("%s is in no part of the file that is executed", s.name)
		}
		ends, err := returnsOf(r, f, s)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", s.name, err)
		}
		pair := goTLS.functions[s.name]
		found = append(found, tlsFunction{pair[0], offset, false})
		for _, end := range ends {
			found = append(found, tlsFunction{pair[1], offset + end, false})
		}
	}
	if len(found) == 0 {
		return nil, errNoTLS
	}
	return found, nil
}

// fileOffset is where an address is in the file, if it is executed.
func fileOffset(f *elf.File, address uint64) (uint64, bool) {
	for _, s := range f.Progs {
		if s.Type == elf.PT_LOAD && s.Flags&elf.PF_X != 0 && address >= s.Vaddr && address-s.Vaddr < s.Filesz {
			return address - s.Vaddr + s.Off, true
		}
	}
	return 0, false
}

// maxFunction bounds the length of a function.
const maxFunction = 1 << 16

func returnsOf(r io.ReaderAt, f *elf.File, s symbol) ([]uint64, error) {
	if s.size == 0 || s.size > maxFunction {
		return nil, fmt.Errorf("it is %d bytes long, want 1 to %d", s.size, maxFunction)
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_LOAD || s.value < p.Vaddr || s.value-p.Vaddr > p.Filesz || p.Filesz-(s.value-p.Vaddr) < s.size {
			continue
		}
		code := make([]byte, s.size)
		if _, err := r.ReadAt(code, int64(p.Off+s.value-p.Vaddr)); err != nil {
			return nil, err
		}
		return findReturns(code)
	}
	return nil, errors.New("it is not in the file")
}

// findReturns are the offsets of RET in a function.
func findReturns(code []byte) ([]uint64, error) {
	var ends []uint64
	for at := 0; at < len(code); {
		instruction, err := x86asm.Decode(code[at:], 64)
		if err != nil {
			return nil, fmt.Errorf("instruction at %d: %w", at, err)
		}
		if instruction.Op == 0 { // a byte that begins nothing
			return nil, fmt.Errorf("instruction at %d: not known", at)
		}
		if instruction.Op == x86asm.RET {
			if ends = append(ends, uint64(at)); len(ends) > maxBinaryProbes {
				return nil, tooLarge("its returns are", uint64(len(ends)), maxBinaryProbes)
			}
		}
		at += instruction.Len
	}
	if len(ends) == 0 {
		return nil, errors.New("it does not return")
	}
	return ends, nil
}
