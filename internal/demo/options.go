package demo

import (
	"fmt"
	"log/slog"
	"os"
	"regexp"
)

// Options of a shop. The zero value is the whole shop at 120 requests a second.
type Options struct {
	Logger *slog.Logger
	// Rate of the load in requests per second, 120 if 0. About 40 of 100 requests are payments,
	// of which 333 a second saturate the payment service.
	Rate float64
	// Seed of all that is random, 1 if 0. The same seed gives the same sequence of requests.
	Seed uint64
	// Binary is the program that is put into the containers; it must call RunService for its
	// arguments after "demo-service". Empty: this program's own file.
	Binary string
	// Without names roles to leave out: "nginx", "redis" (and with it "worker").
	Without []string
	// NoDocker makes control groups and namespaces even where Docker answers.
	NoDocker bool
	// DockerHost as in "unix:///var/run/docker.sock", the environment's if empty.
	DockerHost string
	// ProcFS is the path of the proc file system, /proc if empty.
	ProcFS string
	// Instance is the first part of each container's name, "shop" if empty: lower-case letters
	// and digits, at most 12. Two shops on one host need two of them.
	Instance string
}

const defaultInstance = "shop"

var instancePattern = regexp.MustCompile(`^[a-z0-9]{1,12}$`)

func (o Options) withDefaults() (Options, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Rate == 0 {
		o.Rate = defaultRate
	}
	if !validRate(o.Rate) {
		return o, fmt.Errorf("demo: rate %v is not between 0 and a million requests per second", o.Rate)
	}
	if o.Seed == 0 {
		o.Seed = 1
	}
	if o.ProcFS == "" {
		o.ProcFS = "/proc"
	}
	if o.Instance == "" {
		o.Instance = defaultInstance
	}
	if !instancePattern.MatchString(o.Instance) {
		return o, fmt.Errorf("demo: instance %q is not 1 to 12 lower-case letters or digits", o.Instance)
	}
	if o.Binary == "" {
		self, err := os.Executable()
		if err != nil {
			return o, fmt.Errorf("demo: finding the program's own file: %w", err)
		}
		o.Binary = self
	}
	return o, nil
}

// validRate is false for what is no number, too.
func validRate(r float64) bool { return r >= 0 && r <= 1e6 }

// scope names everything that is made outside of containers: network, images, control groups
// and temporary files. It is how leftovers are found.
func (o Options) scope() string {
	if o.Instance == defaultInstance {
		return "outsight-demo"
	}
	return "outsight-demo-" + o.Instance
}
