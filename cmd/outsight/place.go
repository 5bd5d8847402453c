package main

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"outsight/internal/place"
)

type placeOptions struct {
	remote  remoteFlags
	output  string
	presets map[string]*bool
	// weights are changes of the preset's, the others rules.
	weights, together, apart, on, notOn, stay []string
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
		presets: map[string]*bool{}}
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
		"weight to change, as in traffic=1: traffic, requests, hosts, balance, energy or moves; may be repeated")
	flags.StringArrayVar(&o.together, "together", nil, "containers on one host, as in a,b; may be repeated")
	flags.StringArrayVar(&o.apart, "apart", nil, "containers on a host each, as in a,b or db-*; may be repeated")
	flags.StringArrayVar(&o.on, "on", nil, "hosts that a container may be on, as in db=host-1,host-2; may be repeated")
	flags.StringArrayVar(&o.notOn, "not-on", nil, "hosts that a container may not be on, as in db=host-1; may be repeated")
	flags.StringArrayVar(&o.stay, "stay", nil, "container that does not move; may be repeated")
	flags.StringArrayVar(&o.move, "move", nil, "step to measure instead of a search, as in cart=host-2, or cart=host-2,db=host-1 "+
		"at once; may be repeated")
	flags.StringVar(&o.rules, "rules", "", "file with rules in YAML: together, apart, on, not_on and stay")
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
	if _, err := place.ParseRules(o.together, o.apart, o.on, o.notOn, o.stay); err != nil {
		return nil, usagef("%v", err)
	}
	query := url.Values{"format": {o.output}, "preset": {preset}, "weight": o.weights, "together": o.together,
		"apart": o.apart, "on": o.on, "not_on": o.notOn, "stay": o.stay, "move": o.move, "pod_label": {o.label},
		"moves": {strconv.Itoa(o.moves)}, "headroom": {strconv.FormatFloat(o.headroom, 'g', -1, 64)},
		"seed": {strconv.FormatUint(o.seed, 10)}}
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
