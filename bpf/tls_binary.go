package bpf

import (
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"go/version"
	"os"
	"syscall"

	"golang.org/x/arch/x86/x86asm"
)

func identify(path string) (binaryID, error) {
	info, err := os.Stat(path)
	if err != nil {
		return binaryID{}, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() {
		return binaryID{}, errNoTLS
	}
	return binaryID{stat.Ino, info.Size(), info.ModTime().UnixNano()}, nil
}

// openSSLFunctions finds the functions of libssl: those that the version has.
func openSSLFunctions(path string) ([]tlsFunction, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return nil, err
	}
	var found []tlsFunction
	for _, s := range symbols {
		pair, ok := openSSL.functions[s.Name]
		if !ok || s.Section == elf.SHN_UNDEF {
			continue
		}
		offset, ok := fileOffset(f, s.Value)
		if !ok {
			return nil, fmt.Errorf("%s is in no part of the file that is executed", s.Name)
		}
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
func goFunctions(path string) ([]tlsFunction, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, errNoTLS // a script's interpreter is looked at itself
	}
	defer f.Close()
	if f.Section(".go.buildinfo") == nil || f.Machine != elf.EM_X86_64 {
		return nil, errNoTLS
	}
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if version.Compare(info.GoVersion, registerCalls) < 0 {
		return nil, fmt.Errorf("it was built by %s, want %s or later", info.GoVersion, registerCalls)
	}
	symbols, err := f.Symbols()
	if errors.Is(err, elf.ErrNoSymbols) {
		return nil, errors.New("a Go program without symbols")
	}
	if err != nil {
		return nil, err
	}
	var found []tlsFunction
	for _, s := range symbols {
		pair, ok := goTLS.functions[s.Name]
		if !ok {
			continue
		}
		offset, ok := fileOffset(f, s.Value)
		if !ok {
			return nil, fmt.Errorf("%s is in no part of the file that is executed", s.Name)
		}
		ends, err := returnsOf(f, s)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", s.Name, err)
		}
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

// maxFunction bounds the length of a function.
const maxFunction = 1 << 16

func returnsOf(f *elf.File, s elf.Symbol) ([]uint64, error) {
	if s.Size == 0 || s.Size > maxFunction {
		return nil, fmt.Errorf("it is %d bytes long", s.Size)
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_LOAD || s.Value < p.Vaddr || s.Value+s.Size > p.Vaddr+p.Filesz {
			continue
		}
		code := make([]byte, s.Size)
		if _, err := p.ReadAt(code, int64(s.Value-p.Vaddr)); err != nil {
			return nil, err
		}
		return findReturns(code)
	}
	return nil, errors.New("it is not in the file")
}

// findReturns are the places of RET in a function.
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
			ends = append(ends, uint64(at))
		}
		at += instruction.Len
	}
	if len(ends) == 0 {
		return nil, errors.New("it does not return")
	}
	return ends, nil
}
