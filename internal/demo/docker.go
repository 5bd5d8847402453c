package demo

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
)

const (
	// Paths in every container.
	controlDir  = "/control"
	scratchDir  = "/tmp"
	configPath  = "/etc/nginx.conf"
	programPath = "/outsight"

	controlName   = "control.json"
	instanceLabel = "outsight.demo.instance"
	pingTime      = 3 * time.Second
	graceSeconds  = 3
	// callLimit is for calls that make something. They are not cancelled: the daemon might
	// finish the work after clean has looked for it.
	callLimit = 30 * time.Second
)

// dockerStage runs the parts as Docker containers, from images made of this host's files.
type dockerStage struct {
	options Options
	client  *client.Client
}

// openDocker fails where no daemon answers.
func openDocker(ctx context.Context, o Options) (*dockerStage, error) {
	settings := []client.Opt{client.FromEnv}
	if o.DockerHost != "" {
		settings = append(settings, client.WithHost(o.DockerHost))
	}
	c, err := client.New(settings...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, pingTime)
	defer cancel()
	if _, err := c.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true}); err != nil {
		c.Close()
		return nil, err
	}
	return &dockerStage{options: o, client: c}, nil
}

func (d *dockerStage) mode() string        { return "docker" }
func (d *dockerStage) host(p *part) string { return p.Name }

func (d *dockerStage) labels() map[string]string {
	return map[string]string{"outsight.demo": "1", instanceLabel: d.options.Instance}
}

func (d *dockerStage) filter() client.Filters {
	return client.Filters{}.Add("label", instanceLabel+"="+d.options.Instance)
}

// clean removes every container, network and image that carries this shop's label.
func (d *dockerStage) clean(ctx context.Context) error {
	list, err := d.client.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: d.filter()})
	if err != nil {
		return err
	}
	errs := make([]error, len(list.Items))
	var wait sync.WaitGroup
	for i, c := range list.Items {
		wait.Go(func() { errs[i] = d.removeContainer(ctx, c.ID) })
	}
	wait.Wait()
	return errors.Join(errors.Join(errs...), d.removeNetworks(ctx), d.removeImages(ctx))
}

func (d *dockerStage) removeContainer(ctx context.Context, id string) error {
	_, err := d.client.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("removing container %s: %w", id, err)
	}
	return nil
}

func (d *dockerStage) removeNetworks(ctx context.Context) error {
	list, err := d.client.NetworkList(ctx, client.NetworkListOptions{Filters: d.filter()})
	if err != nil {
		return err
	}
	for _, n := range list.Items {
		if _, err := d.client.NetworkRemove(ctx, n.ID, client.NetworkRemoveOptions{}); err != nil &&
			!errdefs.IsNotFound(err) {
			return fmt.Errorf("removing network %q: %w", n.Name, err)
		}
	}
	return nil
}

func (d *dockerStage) removeImages(ctx context.Context) error {
	list, err := d.client.ImageList(ctx, client.ImageListOptions{All: true, Filters: d.filter()})
	if err != nil {
		return err
	}
	for _, im := range list.Items {
		_, err := d.client.ImageRemove(ctx, im.ID, client.ImageRemoveOptions{Force: true, PruneChildren: true})
		if err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("removing image %s: %w", im.ID, err)
		}
	}
	return nil
}

// prepare makes the network and the images at the same time.
func (d *dockerStage) prepare(ctx context.Context, parts []*part) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callLimit)
	defer cancel()
	programs := map[string]*part{} // one image per program
	for _, p := range parts {
		p.Image = d.imageName(p)
		programs[p.Image] = p
	}
	errs := make(chan error, len(programs)+1)
	go func() {
		_, err := d.client.NetworkCreate(ctx, d.options.scope(),
			client.NetworkCreateOptions{Driver: "bridge", Labels: d.labels()})
		if err != nil {
			err = fmt.Errorf("making network %q: %w", d.options.scope(), err)
		}
		errs <- err
	}()
	for name, p := range programs {
		go func() { errs <- d.makeImage(ctx, name, p) }()
	}
	var all []error
	for range len(programs) + 1 {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

func (d *dockerStage) imageName(p *part) string {
	if p.ours() {
		return d.options.scope() + "/shop:latest"
	}
	return d.options.scope() + "/" + p.Role + ":latest"
}

func (d *dockerStage) target(p *part) string {
	if p.ours() {
		return programPath
	}
	return p.program
}

func (d *dockerStage) makeImage(ctx context.Context, name string, p *part) error {
	im, err := newImage(p.program, d.target(p))
	if err != nil {
		return err
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(im.write(w)) }()
	defer r.Close()
	o := client.ImageImportOptions{}
	for k, v := range d.labels() {
		o.Changes = append(o.Changes, fmt.Sprintf("LABEL %s=%s", k, v))
	}
	for _, e := range im.env {
		o.Changes = append(o.Changes, "ENV "+e)
	}
	result, err := d.client.ImageImport(ctx, client.ImageImportSource{Source: r, SourceName: "-"}, name, o)
	if err != nil {
		return fmt.Errorf("making image %q: %w", name, err)
	}
	defer result.Close()
	if _, err := io.Copy(io.Discard, result); err != nil {
		return fmt.Errorf("making image %q: %w", name, err)
	}
	return nil
}

func (d *dockerStage) start(ctx context.Context, p *part, at func(string) string) (io.ReadCloser, error) {
	here := site{at: at, scratch: scratchDir, config: configPath, control: controlDir + "/" + controlName}
	command := append([]string{d.target(p)}, p.args(here)...)
	// The output is read until the container ends, long after the start.
	life := context.WithoutCancel(ctx)
	ctx, cancel := context.WithTimeout(life, callLimit)
	defer cancel()
	made, err := d.client.ContainerCreate(ctx, client.ContainerCreateOptions{
		Name:   p.Name,
		Config: &container.Config{Image: p.Image, Entrypoint: command, Labels: d.labels(), Hostname: p.Name},
		HostConfig: &container.HostConfig{
			NetworkMode: container.NetworkMode(d.options.scope()),
			LogConfig:   container.LogConfig{Type: "json-file", Config: map[string]string{"max-size": "4m", "max-file": "2"}},
		},
	})
	if err != nil {
		return nil, err
	}
	p.ID = made.ID
	if p.config != nil {
		if err := d.copyFile(ctx, p, configPath, []byte(p.config(here))); err != nil {
			return nil, err
		}
	}
	if _, err := d.client.ContainerStart(ctx, p.ID, client.ContainerStartOptions{}); err != nil {
		return nil, err
	}
	info, err := d.client.ContainerInspect(ctx, p.ID, client.ContainerInspectOptions{})
	if err != nil {
		return nil, err
	}
	if s := info.Container.NetworkSettings; s != nil && s.Networks[d.options.scope()] != nil {
		p.Address = s.Networks[d.options.scope()].IPAddress
	}
	return d.output(life, p)
}

func (d *dockerStage) output(ctx context.Context, p *part) (io.ReadCloser, error) {
	logs, err := d.client.ContainerLogs(ctx, p.ID,
		client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Follow: true})
	if err != nil {
		return nil, err
	}
	r, w := io.Pipe()
	go func() {
		defer logs.Close()
		_, err := stdcopy.StdCopy(w, w, logs)
		w.CloseWithError(err)
	}()
	return r, nil
}

// copyFile puts a file into a container, running or not.
func (d *dockerStage) copyFile(ctx context.Context, p *part, name string, content []byte) error {
	var b bytes.Buffer
	t := tar.NewWriter(&b)
	f := imageFile{path: path.Base(name), mode: 0o644, content: string(content)}
	if err := errors.Join(f.write(t), t.Close()); err != nil {
		return err
	}
	_, err := d.client.CopyToContainer(ctx, p.ID,
		client.CopyToContainerOptions{DestinationPath: path.Dir(name), Content: &b})
	return err
}

func (d *dockerStage) send(ctx context.Context, p *part, control []byte) error {
	if err := d.copyFile(ctx, p, path.Join(controlDir, controlName), control); err != nil {
		return err
	}
	_, err := d.client.ContainerKill(ctx, p.ID, client.ContainerKillOptions{Signal: "HUP"})
	return err
}

func (d *dockerStage) stop(ctx context.Context, p *part) error {
	grace := graceSeconds
	_, err := d.client.ContainerStop(ctx, p.ID, client.ContainerStopOptions{Timeout: &grace})
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("stopping %s: %w", p.Name, err)
	}
	return nil
}

func (d *dockerStage) close(ctx context.Context) error {
	return errors.Join(d.clean(ctx), d.client.Close())
}
