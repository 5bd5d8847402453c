package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// limitedApp is an application of several containers of which it is known what its limit is.
type limitedApp struct {
	// name says what it is, part which part of docs/analysis.md has what was measured.
	name, part string
	// first is the first rate of requests, byCPU whether CPU time or a quota is the limit.
	first float64
	byCPU bool
	start func(*appStage) (url string, err error)
	// proof says what was used up at the highest load; an error is that it is not what should be.
	proof func(*appStage, *loadStep) (string, error)
}

const (
	// workerQuota is in cores, workerTime the CPU time in microseconds for a request.
	workerQuota, workerTime = 0.2, 2000
	// gateAtOnce is how many requests the gate lets through at a time, gatePause how many microseconds each takes behind it.
	gateAtOnce, gatePause = 4, 20_000
	// poolConnections is how many there are to PostgreSQL, logBytes what is written to the disk for a request, and logWrites
	// how many writes per second the disk takes of the container that does so: some for each record.
	poolConnections, logBytes, logWrites = 4, 64 << 10, 400
)

// limitedApps have other bottlenecks than the demo shop.
var limitedApps = []limitedApp{
	{name: "nginx, a worker with a quota, Redis", part: "limits-quota", first: 10, byCPU: true, start: startWorkerApp, proof: func(s *appStage,
		last *loadStep) (string, error) {
		u := last.usage(s.container("worker"))
		if u == nil || u.CPUCores == nil || u.ThrottledShare == nil {
			return "", errors.New("nothing is known of the worker")
		}
		text := fmt.Sprintf("the worker takes %.3f of its quota of %.2g cores and is held back in %.0f %% of its periods; the host is "+
			"idle for %.0f %% of the time", *u.CPUCores, workerQuota, 100**u.ThrottledShare, 100*last.Idle)
		return text, last.idleEnough(*u.CPUCores >= 0.9*workerQuota && *u.ThrottledShare >= 0.8, text)
	}},
	{name: "a pool of 4 connections to PostgreSQL", part: "limits-pool", first: 15, start: startPool, proof: func(s *appStage,
		last *loadStep) (string, error) {
		front, db := last.usage(s.container("front")), last.usage(s.container("db"))
		if front == nil || db == nil || front.CPUCores == nil || db.CPUCores == nil {
			return "", errors.New("nothing is known of the containers")
		}
		busy := 0.0
		for _, c := range last.analysis.Connections {
			busy += c.Busy
		}
		text := fmt.Sprintf("of %d connections %.2f are busy; the server takes %.2f cores, PostgreSQL %.2f; the host is idle for %.0f %% "+
			"of the time", poolConnections, busy, *front.CPUCores, *db.CPUCores, 100*last.Idle)
		return text, last.idleEnough(busy >= 0.9*poolConnections && *front.CPUCores+*db.CPUCores < 0.7, text)
	}},
	{name: "a gate of 4 requests at a time to another server", part: "limits-gate", first: 25, start: startGate, proof: func(s *appStage,
		last *loadStep) (string, error) {
		front, back := last.usage(s.container("front")), last.usage(s.container("back"))
		if front == nil || back == nil || front.CPUCores == nil || back.CPUCores == nil {
			return "", errors.New("nothing is known of the containers")
		}
		busy := 0.0
		for _, c := range last.analysis.Connections {
			busy += c.Busy
		}
		text := fmt.Sprintf("%.2f requests to the other server are under way; the server takes %.2f cores, the other one %.2f; the host is "+
			"idle for %.0f %% of the time", busy, *front.CPUCores, *back.CPUCores, 100*last.Idle)
		return text, last.idleEnough(busy >= 0.8*gateAtOnce && *front.CPUCores+*back.CPUCores < 0.7, text)
	}},
	{name: "a log on a disk", part: "limits-disk", first: 10, start: startLog, proof: func(s *appStage, last *loadStep) (string, error) {
		for _, r := range last.analysis.Resources {
			if r.Name == s.container("front") && r.Waits != nil && r.Latency != nil {
				text := fmt.Sprintf("of the %.0f ms in which the server answers, %.0f are neither CPU time nor waits for a CPU; it takes %.2f "+
					"cores; the host is idle for %.0f %% of the time", 1e3**r.Latency, 1e3**r.Waits, r.CPUCores, 100*last.Idle)
				return text, last.idleEnough(*r.Waits >= 0.9**r.Latency && r.CPUCores < 0.7, text)
			}
		}
		return "", errors.New("nothing is known of the server")
	}},
}

// idleEnough is no error if the limit holds and the host's CPUs are not used up besides.
func (s *loadStep) idleEnough(limit bool, text string) error {
	if limit && s.Idle >= 0.3 {
		return nil
	}
	return fmt.Errorf("the limit that was measured is another one: %s", text)
}

func startWorkerApp(s *appStage) (url string, err error) {
	redis, err := s.run("redis", nil, "/usr/bin/redis-server", "--bind", "0.0.0.0", "--protected-mode", "no", "--save", "")
	if err != nil {
		return "", err
	}
	worker, err := s.runWorker("worker", redis)
	if err != nil {
		return "", err
	}
	if err := s.writeNginx(worker); err != nil {
		return "", err
	}
	front, err := s.run("front", []string{"-v", s.directory + ":/etc/app:ro"}, "/usr/sbin/nginx", "-c", "/etc/app/nginx.conf")
	return "http://" + front + ":8080/", err
}

func (s *appStage) runWorker(name, redis string) (address string, err error) {
	return s.run(name, []string{"--cpus", fmt.Sprint(workerQuota)}, "/apps", "work", redis+":6379", fmt.Sprint(workerTime))
}

// writeNginx writes the configuration of nginx in front of workers.
func (s *appStage) writeNginx(workers ...string) error {
	servers := ""
	for _, w := range workers {
		servers += fmt.Sprintf("server %s:8080; ", w)
	}
	configuration := fmt.Sprintf(`daemon off; user root; worker_processes 1; pid /tmp/pid; error_log stderr warn;
events { worker_connections 1000; }
http {
	access_log off; keepalive_requests 100000000; client_body_temp_path /tmp/body; proxy_temp_path /tmp/proxy;
	fastcgi_temp_path /tmp/fastcgi; uwsgi_temp_path /tmp/uwsgi; scgi_temp_path /tmp/scgi;
	upstream worker { %skeepalive %d; }
	server { listen 8080; location / { proxy_pass http://worker; proxy_http_version 1.1; proxy_set_header Connection ""; } }
}`, servers, limitConnections)
	return os.WriteFile(filepath.Join(s.directory, "nginx.conf"), []byte(configuration), 0o644)
}

func startPool(s *appStage) (url string, err error) {
	const programs = "/usr/lib/postgresql/15/bin/"
	data := filepath.Join(s.directory, "data")
	const nobody = 65534
	if err := errors.Join(os.Mkdir(data, 0o700), os.Chown(data, nobody, nobody)); err != nil {
		return "", err
	}
	user := []string{"--user", fmt.Sprint(nobody), "-v", data + ":/data"}
	if _, err := s.docker(append(append([]string{"run", "--rm"}, s.mounts(user)...), s.name, programs+"initdb", "-D", "/data",
		"-U", "postgres", "-A", "trust", "--no-sync", "--locale=C", "-E", "UTF8")...); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(data, "pg_hba.conf"), []byte("host all all all trust\n"), 0o644); err != nil {
		return "", err
	}
	database, err := s.run("db", user, programs+"postgres", "-D", "/data", "-c", "listen_addresses=*",
		"-c", "unix_socket_directories=/tmp", "-c", "fsync=off", "-c", "jit=off", "-c", "autovacuum=off")
	if err != nil {
		return "", err
	}
	front, err := s.run("front", nil, "/apps", "pool", database+":5432", fmt.Sprint(poolConnections))
	return "http://" + front + ":8080/", err
}

func startGate(s *appStage) (url string, err error) {
	back, err := s.run("back", nil, "/apps", "pause", "-", fmt.Sprint(gatePause))
	if err != nil {
		return "", err
	}
	front, err := s.run("front", nil, "/apps", "gate", back+":8080", fmt.Sprint(gateAtOnce))
	return "http://" + front + ":8080/", err
}

// startLog lets the kernel slow the disk down for the server, which is its limit then on every machine.
func startLog(s *appStage) (url string, err error) {
	disk, err := s.disk()
	if err != nil {
		return "", err
	}
	front, err := s.run("front", []string{"--device-write-iops", fmt.Sprintf("%s:%d", disk, logWrites)}, "/apps", "log", "/data/log",
		fmt.Sprint(logBytes))
	return "http://" + front + ":8080/", err
}

// disk is the block device that containers write to.
func (s *appStage) disk() (string, error) {
	root, err := s.docker("info", "-f", "{{.DockerRootDir}}")
	if err != nil {
		return "", err
	}
	var at unix.Stat_t
	if err := unix.Stat(root, &at); err != nil {
		return "", fmt.Errorf("looking for the disk of %s: %w", root, err)
	}
	device, err := filepath.EvalSymlinks(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(at.Dev), unix.Minor(at.Dev)))
	if err != nil {
		return "", fmt.Errorf("looking for the disk of %s: %w", root, err)
	}
	if _, err := os.Stat(filepath.Join(device, "partition")); err == nil {
		device = filepath.Dir(device) // whole disks alone can be slowed down
	}
	return "/dev/" + filepath.Base(device), nil
}
