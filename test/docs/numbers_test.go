package docs

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"outsight/internal/model"
)

const numbersScript = "../../web/src/numbers.ts"

// TestNumbersScript compares what the page knows of numbers with the registry of metrics.
func TestNumbersScript(t *testing.T) {
	compare(t, numbersScript, script())
}

// script is web/src/numbers.ts.
func script() string {
	usage, side := model.Numbers(model.ContainerRows, model.UsageGroups), model.Numbers(model.EdgeRows, model.SideGroups)
	host := model.Numbers(model.HostRows, model.HostGroups)
	var b strings.Builder
	b.WriteString(`// Made from the registry of metrics (internal/model) by scripts/generate: do not edit.

/** Seconds; "+Inf" is a duration past the end of the histogram's range. */
export type Seconds = number | '+Inf'

/** What one end of an edge counted in a window. */
export interface Side {
`)
	for _, n := range side {
		optional, kind := "?", "number"
		if n.Always {
			optional = ""
		}
		if n.Unit == "s" {
			kind = "Seconds"
		}
		if n.Meaning != "" {
			fmt.Fprintf(&b, "  /** %s */\n", n.Meaning)
		}
		fmt.Fprintf(&b, "  %s%s: %s\n", n.Key, optional, kind)
	}
	b.WriteString("}\n")
	groups := func(name, of string, groups []string, numbers []model.Shown) {
		fmt.Fprintf(&b, "\n/** The numbers of %s by the headings of the page, in the order in which people ask for them. */\n", of)
		fmt.Fprintf(&b, "export const %s: [string, string[]][] = [\n", name)
		for _, group := range groups {
			fmt.Fprintf(&b, "  ['%s', [", group)
			separator := ""
			for _, n := range numbers {
				if n.Group == group && n.Title != "" {
					fmt.Fprintf(&b, "%s'%s'", separator, n.Key)
					separator = ", "
				}
			}
			b.WriteString("]],\n")
		}
		b.WriteString("]\n")
	}
	groups("USAGE_GROUPS", "a container", model.UsageGroups, usage)
	groups("SIDE_GROUPS", "a side of an edge", model.SideGroups, side)
	groups("ENDS_GROUPS", "both ends of an edge together", model.EndsGroups, model.EndsNumbers())
	groups("PROBE_GROUPS", "what is measured between two hosts", model.ProbeGroups, model.ProbeNumbers)
	meanings := func(name string, numbers []model.Shown) {
		fmt.Fprintf(&b, "\n/** What a number means, in plain words, where its title does not say it. */\nexport const %s: Record<string, string> = {\n", name)
		for _, n := range numbers {
			if n.Meaning != "" {
				fmt.Fprintf(&b, "  %s: '%s',\n", n.Key, strings.ReplaceAll(n.Meaning, "'", `\'`))
			}
		}
		b.WriteString("}\n")
	}
	meanings("USAGE_MEANING", usage)
	meanings("SIDE_MEANING", side)
	meanings("ENDS_MEANING", slices.Concat(model.EndsNumbers(), model.ProbeNumbers))
	meanings("HOST_MEANING", host)
	b.WriteString("\n/** The numbers of edges of which more is worse. */\nexport const TROUBLE: ReadonlySet<string> = new Set([")
	separator := ""
	for _, n := range slices.Concat(side, model.EndsNumbers(), model.ProbeNumbers) {
		if n.Trouble {
			fmt.Fprintf(&b, "%s'%s'", separator, n.Key)
			separator = ", "
		}
	}
	b.WriteString("])\n")
	return b.String()
}
