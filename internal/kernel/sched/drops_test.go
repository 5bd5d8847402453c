package sched

import (
	"testing"

	"outsight/internal/kernel/kerneltest"
)

func TestDropsHaveNames(t *testing.T) {
	kerneltest.DropsHaveNames(t, cgroupDropNames, cgroupsCgroupDropCGROUP_DROPS)
	kerneltest.DropsHaveNames(t, contentionDropNames, contentionContentionDropCONTENTION_DROPS)
	kerneltest.DropsHaveNames(t, reclaimDropNames, reclaimReclaimDropRECLAIM_DROPS)
	kerneltest.DropsHaveNames(t, appmetricsDropNames, appmetricsAppmetricsDropAPPMETRICS_DROPS)
	kerneltest.DropsHaveNames(t, counterDropNames, countersCounterDropCOUNTER_DROPS)
}
