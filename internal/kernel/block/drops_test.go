package block

import (
	"testing"

	"outsight/internal/kernel/kerneltest"
)

func TestDropsHaveNames(t *testing.T) {
	kerneltest.DropsHaveNames(t, diskDropNames, diskDiskDropDISK_DROPS)
	kerneltest.DropsHaveNames(t, filesDropNames, filesFilesDropFILES_DROPS)
}
