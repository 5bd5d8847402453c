package main

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"outsight/internal/place"
)

type placeOptions struct {
	remote  remoteFlags
	output  string
	presets map[string]*bool
	// weights are changes of the preset's, said are rules by their names.
	weights []string
	said    map[string]*[]string
	// move are steps that were chosen.
	move     []string
	rules    string
	moves    int
	headroom float64
	seed     uint64
	label    string
}

func newPlace() *cobra.Command {
	o := placeOptions{remote: remoteFlags{outputs: append([]string{"text", "json"}, place.Manifests...)},
		presets: map[string]*bool{}, said: map[string]*[]string{}}
	c := &cobra.Command{
		Use:   "place",
		Short: "Where containers would better run, and the moves that lead there",
		Long: `Ask a server where the containers of a window would better run: so that fewer bytes and urgent requests go between
hosts, fewer hosts are in use, or their CPUs are used more evenly, within the hosts' cores and memory at the containers'
peaks. The answer is a list of moves, those that gain most first. Nothing is moved.`,
		Example: `  outsight place --server http://127.0.0.1:8470 --from now-1h
  outsight place --server http://127.0.0.1:8470 --fewest-hosts --apart 'shop/db-*' --stay legacy
  outsight place --server http://127.0.0.1:8470 --least-traffic --moves 3 --output kubernetes > patches.yaml
  outsight place --server http://127.0.0.1:8470 --rules rules.yaml --weight traffic=2 --weight moves=0
  outsight place --server http://127.0.0.1:8470 --require db=disk=ssd --host-label host-2=disk=ssd --movable db
  outsight place --server http://127.0.0.1:8470 --move cart=host-2 --move db=host-1`,
		RunE: func(c *cobra.Command, _ []string) error {
			query, err := o.query()
			if err != nil {
				return err
			}
			var rules []byte
			if o.rules != "" {
				if rules, err = readRules(o.rules); err != nil {
					return err
				}
			}
			return o.remote.ask(c.Context(), "place", query, rules, c.OutOrStdout())
		},
	}
	flags := c.Flags()
	o.remote.add(flags, "placement")
	flags.StringVarP(&o.output, "output", "o", "text", "text, json, kubernetes (patches), compose (constraints of Swarm) or "+
		"network-aware (AppGroup and NetworkTopology of Kubernetes' scheduler plugins)")
	for name, what := range map[string]string{
		"least-traffic":  "as few bytes between hosts as possible",
		"fewest-hosts":   "as few hosts in use as possible",
		"lowest-latency": "as few requests between hosts as possible, those that are answered fast first",
		"lowest-energy":  "as little power as possible, where a meter of each host tells it",
	} {
		o.presets[name] = flags.Bool(name, false, what)
	}
	flags.StringArrayVar(&o.weights, "weight", nil,
		"weight to change, as in traffic=1: traffic, requests, uplink, hosts, balance, energy or moves; may be repeated")
	for name, what := range map[string]string{
		"together":   "containers on one host, as in a,b",
		"apart":      "containers on a host each, as in a,b or db-*",
		"on":         "hosts that a container may be on, as in db=host-1,host-2",
		"not-on":     "hosts that a container may not be on, as in db=host-1",
		"require":    "labels that the host of a container has to have, as in db=disk=ssd or 'db=zone in (a,b)'",
		"host-label": "label that a host has besides those that are seen, as in host-1=disk=ssd",
		"stay":       "container that does not move",
		"movable":    "container that may move although it has a volume or a bind mount",
	} {
		o.said[strings.ReplaceAll(name, "-", "_")] = flags.StringArray(name, nil, what+"; may be repeated")
	}
	flags.StringArrayVar(&o.move, "move", nil, "step to measure instead of a search, as in cart=host-2, or cart=host-2,db=host-1 "+
		"at once; may be repeated")
	flags.StringVar(&o.rules, "rules", "", "file with rules in YAML: together, apart, on, not_on, require, host_labels, stay and movable")
	flags.IntVar(&o.moves, "moves", 0, "most steps (default: all that gain)")
	flags.Float64Var(&o.headroom, "headroom", place.DefaultHeadroom, "share of each host that is left free, 0 to 0.9")
	flags.Uint64Var(&o.seed, "seed", 0, "beginning of the search; with the same one the answer is the same")
	flags.StringVar(&o.label, "pod-label", place.DefaultPodLabel, "label of pods that has their workload's name, for manifests")
	return c
}

// query checks the flags and makes the server's query of them.
func (o *placeOptions) query() (url.Values, error) {
	if o.remote.server == "" {
		return nil, usagef("--server is missing: a placement is of the hosts that a server knows")
	}
	if err := o.remote.check(o.output); err != nil {
		return nil, err
	}
	preset := ""
	for _, name := range place.PresetNames() {
		if *o.presets[name] && preset != "" {
			return nil, usagef("--%s and --%s exclude one another", preset, name)
		}
		if *o.presets[name] {
			preset = name
		}
	}
	if _, err := place.ParseWeights(preset, o.weights); err != nil {
		return nil, usagef("%v", err)
	}
	query := url.Values{"format": {o.output}, "preset": {preset}, "weight": o.weights, "move": o.move, "pod_label": {o.label},
		"moves": {strconv.Itoa(o.moves)}, "headroom": {strconv.FormatFloat(o.headroom, 'g', -1, 64)},
		"seed": {strconv.FormatUint(o.seed, 10)}}
	for name, texts := range o.said {
		query[name] = *texts
	}
	if _, err := place.ParseRules(query); err != nil {
		return nil, usagef("%v", err)
	}
	return query, nil
}

// readRules reads a file and refuses what is no rule.
func readRules(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading --rules: %w", err)
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&place.Rules{}); err != nil {
		return nil, usagef("--rules %s: %v", path, err)
	}
	return text, nil
}
