package agent

import (
	"os"
	"slices"
	"syscall"
	"testing"
)

// The host's own root filesystem, compared with what the kernel says before and after.
func TestFileSystems(t *testing.T) {
	f := fileSystems{procRoot: "/proc"}
	of, err := f.process()
	if err != nil {
		t.Fatal(err)
	}
	used := func() uint64 {
		var s syscall.Statfs_t
		if err := syscall.Statfs(of+"/root/", &s); err != nil {
			t.Fatal(err)
		}
		return (s.Blocks - s.Bfree) * uint64(s.Frsize)
	}
	mounts, err := os.ReadFile(of + "/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if all := mountsOf(mounts); !slices.Contains(all, "/") {
		t.Skipf("the root is of no local filesystem: %v", all)
	}
	before := used()
	found, err := f.read()
	after := used()
	if err != nil || len(found) == 0 || found[0].Mount != "/" {
		t.Fatalf("%+v, %v", found, err)
	}
	// Others write meanwhile, so that it may go up and down by a little.
	const others = 64 << 20
	if root := found[0]; root.UsedBytes+others < min(before, after) || root.UsedBytes > max(before, after)+others ||
		root.SizeBytes < root.UsedBytes {
		t.Errorf("%+v, the kernel says %d and then %d", root, before, after)
	}
	f.procRoot = "/nowhere"
	if again, err := f.read(); err != nil || !slices.Equal(again, found) {
		t.Errorf("in the next reading: %v, %v", again, err)
	}
	for range fileSystemsEvery - 2 {
		f.read()
	}
	if _, err := f.read(); err == nil {
		t.Error("mounts that cannot be read are no error")
	}
}

const mountinfo = `21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
22 21 0:5 / /dev rw,nosuid - devtmpfs devtmpfs rw,size=1
23 21 254:0 /var/lib/docker /var/lib/docker rw - ext4 /dev/vda rw
24 21 254:16 / /a\040disk rw - xfs /dev/vdb rw
25 21 254:16 / /mnt/longer\040than\040that rw - xfs /dev/vdb rw
26 21 254:32 / /cdrom ro,relatime - ext4 /dev/vdc ro
27 21 0:44 / /net rw - nfs4 server:/x rw
28 21 0:45 / /run rw - tmpfs tmpfs rw,size=9k
29 21 0:46 / /var/lib/docker/containers/1/mounts/shm rw - tmpfs shm rw,size=65536k
30 21 0:47 / /var/lib/docker/overlay2/1/merged rw - overlay overlay rw
31 21 254:48 / /var/lib/kubelet/pods/1/volumes/pvc-1/mount rw - ext4 /dev/vdd rw
`

func TestMounts(t *testing.T) {
	if got, want := mountsOf([]byte(mountinfo)), []string{"/", "/a disk", "/run",
		"/var/lib/kubelet/pods/1/volumes/pvc-1/mount"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A link in the way to a mount point is not followed.
func TestSpaceOfLink(t *testing.T) {
	root := t.TempDir()
	if err := os.Symlink("/", root+"/link"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(root+"/directory", 0o755); err != nil {
		t.Fatal(err)
	}
	if _, _, err := spaceOf(root, "/link"); err == nil {
		t.Error("a link was followed")
	}
	if _, size, err := spaceOf(root, "/directory"); err != nil || size == 0 {
		t.Errorf("%d, %v", size, err)
	}
	if _, size, err := spaceOf(root, "/"); err != nil || size == 0 {
		t.Errorf("/: %d, %v", size, err)
	}
}

func FuzzMounts(f *testing.F) {
	f.Add([]byte(mountinfo))
	f.Add([]byte("1 2 3:4 / /\\1 rw - ext4 x rw\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if all := mountsOf(text); !slices.IsSorted(all) {
			t.Errorf("%q", all)
		}
	})
}
