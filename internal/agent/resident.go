package agent

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// startPagesAfter is how long after the start its pages are unmapped: until then the kernel programs are loaded and
// each part has had its turns.
const startPagesAfter = 5 * time.Second

// mapping is a range of this process's memory.
type mapping struct {
	begin, end uintptr
}

// unmapStartPages unmaps the pages of the executable that were read so far. The start touches most of a binary
// (initialisation of packages, relocations, the kernel's type information), the work that follows a fifth of it; what
// is needed again comes back from the page cache, 16 pages at a time. Only ranges whose pages are all the file's own
// are unmapped.
func unmapStartPages() error {
	clean, err := cleanMappings()
	if err != nil {
		return err
	}
	for _, m := range clean {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.begin, m.end-m.begin, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("letting %x-%x of the executable go: %w", m.begin, m.end, errno)
		}
	}
	return nil
}

// cleanMappings are the read-only ranges of the executable without any page of the process's own.
func cleanMappings() ([]mapping, error) {
	executable, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return nil, fmt.Errorf("looking for the executable: %w", err)
	}
	file, err := os.Open("/proc/self/smaps")
	if err != nil {
		return nil, fmt.Errorf("reading the memory map: %w", err)
	}
	defer file.Close()
	var clean []mapping
	var m mapping
	lines, ours, own := bufio.NewScanner(file), false, false
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		switch {
		case len(words) >= 5 && !strings.HasSuffix(words[0], ":"): // begin-end mode offset device inode path
			own = false
			ours = len(words) == 6 && words[5] == executable && words[1][1] != 'w' && words[1][3] == 'p'
			if _, err := fmt.Sscanf(words[0], "%x-%x", &m.begin, &m.end); err != nil {
				return nil, fmt.Errorf("reading the memory map's %q: %w", lines.Text(), err)
			}
		case words[0] == "Anonymous:":
			own = words[1] != "0"
		case words[0] == "Swap:" && ours && !own && words[1] == "0":
			clean = append(clean, m)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading the memory map: %w", err)
	}
	return clean, nil
}
