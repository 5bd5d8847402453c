package demo

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
)

// Part is one container of the shop.
type Part struct {
	// Name of the container, as in "shop-payment"; Role without the shop, as in "payment".
	Name string
	Role string
	// ID is the container's full id: Docker's, or that of a control group of the launcher's own.
	ID    string
	Image string
	// Address in the shop's network.
	Address netip.Addr
}

// Edge is a directed relation of the shop: Client opens connections to Server at Port.
type Edge struct {
	Client, Server string
	Port           uint16
}

const (
	shopPort  = 8080
	nginxPort = 80
	redisPort = 6379
)

// edges of the whole shop, by role.
var edges = []Edge{
	{"load", "nginx", nginxPort},
	{"nginx", "gateway", shopPort},
	{"gateway", "catalogue", shopPort},
	{"gateway", "cart", shopPort},
	{"gateway", "payment", shopPort},
	{"catalogue", "redis", redisPort},
	{"cart", "redis", redisPort},
	{"payment", "redis", redisPort},
	{"worker", "redis", redisPort},
}

// Edges is the true edge list of the whole shop, with the names of its containers. Where nginx
// or Redis is left out, Shop.Edges has what is left.
func Edges() []Edge { return edgesOf(defaultInstance, nil) }

func edgesOf(instance string, without []string) []Edge {
	var list []Edge
	for _, e := range edges {
		if e.Server == "nginx" && slices.Contains(without, "nginx") {
			e = Edge{e.Client, "gateway", shopPort}
		}
		if slices.Contains(without, e.Client) || slices.Contains(without, e.Server) {
			continue
		}
		list = append(list, Edge{partName(instance, e.Client), partName(instance, e.Server), e.Port})
	}
	return list
}

func partName(instance, role string) string { return instance + "-" + role }

// packages of Debian that the shop's optional parts come from: role, program, package.
var packages = []struct{ role, program, name string }{
	{"nginx", "nginx", "nginx"},
	{"redis", "redis-server", "redis-server"},
}

// Missing names the Debian packages without which a part of the shop is left out.
func Missing() []string {
	var missing []string
	for _, p := range packages {
		if findProgram(p.program) == "" {
			missing = append(missing, p.name)
		}
	}
	return missing
}

// findProgram looks in the path and in the system directories that a plain user's path lacks.
func findProgram(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, dir := range []string{"/usr/sbin", "/usr/local/sbin", "/sbin"} {
		if info, err := os.Stat(dir + "/" + name); err == nil && info.Mode().IsRegular() {
			return dir + "/" + name
		}
	}
	return ""
}

// site is where a part runs.
type site struct {
	// at is the address of a role's server, with the port.
	at func(role string) string
	// scratch is a directory to write to; config and control are files.
	scratch, config, control string
}

// part is a Part and how it is started.
type part struct {
	Part
	port int
	// wave says when: what a wave calls is up in the wave before.
	wave int
	// program on this host, and its arguments where it runs.
	program string
	args    func(site) []string
	// config is the content of the file site.config, if the program reads one.
	config func(site) string
	// ready is text in the program's output that says that it serves; empty for a service of
	// ours, whose first status says so.
	ready  string
	output *output
}

// plan lists the parts of a shop without the roles left out.
func plan(o Options, without []string) []*part {
	redis := func(at site) []string {
		if slices.Contains(without, "redis") {
			return nil
		}
		return []string{"--redis", at.at("redis")}
	}
	door := "nginx"
	if slices.Contains(without, "nginx") {
		door = "gateway"
	}
	all := []*part{
		redisPart(),
		o.service("catalogue", 1, redis),
		o.service("cart", 1, redis),
		o.service("payment", 1, redis),
		o.service("gateway", 1, func(at site) []string {
			return []string{"--catalogue", at.at("catalogue"), "--cart", at.at("cart"), "--payment", at.at("payment")}
		}),
		nginxPart(),
		o.service("worker", 2, redis),
		o.service("load", 3, func(at site) []string {
			return []string{"--target", at.at(door), "--rate", strconv.FormatFloat(o.Rate, 'g', -1, 64)}
		}),
	}
	all = slices.DeleteFunc(all, func(p *part) bool { return slices.Contains(without, p.Role) })
	for _, p := range all {
		p.Name = partName(o.Instance, p.Role)
	}
	return all
}

// service is a part that this binary runs.
func (o Options) service(role string, wave int, args func(site) []string) *part {
	return &part{
		Part: Part{Role: role}, port: shopPort, wave: wave, program: o.Binary,
		args: func(at site) []string {
			own := []string{
				"demo-service", role, "--listen", fmt.Sprintf(":%d", shopPort),
				"--control", at.control, "--seed", strconv.FormatUint(o.Seed, 10),
			}
			return append(own, args(at)...)
		},
	}
}

func redisPart() *part {
	return &part{
		Part: Part{Role: "redis"}, port: redisPort, wave: 1, program: findProgram("redis-server"),
		ready: "Ready to accept connections",
		args: func(at site) []string {
			return []string{
				"--port", strconv.Itoa(redisPort), "--bind", "0.0.0.0", "--protected-mode", "no",
				"--save", "", "--appendonly", "no", "--daemonize", "no", "--maxmemory", "64mb", "--dir", at.scratch,
			}
		},
	}
}

func nginxPart() *part {
	return &part{
		Part: Part{Role: "nginx"}, port: nginxPort, wave: 2, program: findProgram("nginx"),
		ready: "start worker process",
		args:  func(at site) []string { return []string{"-e", "stderr", "-c", at.config} },
		config: func(at site) string {
			return nginxConfig(at.at("gateway"), at.scratch, nginxPort)
		},
	}
}
