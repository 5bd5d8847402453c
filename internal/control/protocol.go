package control

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"
)

// Path is where a server answers questions of agents: a Question in the body of a POST, a State in the answer.
const Path = "/api/outsight/agents/desired"

// ContentType is that of questions and answers.
const ContentType = "application/json"

// Bounds of what is read.
const (
	MaxQuestionBytes = 16 << 10
	MaxStateBytes    = 1 << 20
	maxHostBytes     = 255
	maxVersionBytes  = 64
	maxAddresses     = 64
	// MaxSessions bounds the sessions of an agent, and as many peers ask its reflector.
	MaxSessions = 1024
	// MinInterval and MaxInterval are between two packets of a session.
	MinInterval = 100 * time.Millisecond
	MaxInterval = 128 * MinInterval
	// minKeyBytes is the least length of a key, maxKeyBytes the greatest.
	minKeyBytes, maxKeyBytes = 16, 64
	// minLease and maxLease bound how long a state holds without another answer.
	minLease, maxLease = time.Second, time.Hour
)

// Question is what an agent tells of itself, and which state it has.
type Question struct {
	// Host is its name in frames, Epoch that of its frames: an agent that has begun anew has another one.
	Host  string `json:"host"`
	Epoch uint64 `json:"epoch"`
	// Addresses at which other hosts can reach it, the best first, and the Port of its reflector there.
	Addresses []netip.Addr `json:"addresses"`
	Port      uint16       `json:"port"`
	// Containers says that the agent makes sockets in the network namespaces of its containers.
	Containers bool `json:"containers,omitempty"`
	// Version of the state that it has; empty for none.
	Version string `json:"version,omitempty"`
}

// State is what an agent is to do.
type State struct {
	// Version names the contents. Unchanged says that it is what the agent has, which is not told again.
	Version   string `json:"version"`
	Unchanged bool   `json:"unchanged,omitempty"`
	// LeaseSeconds is how long it holds without another answer.
	LeaseSeconds float64   `json:"lease_seconds"`
	Sessions     []Session `json:"sessions,omitempty"`
	Peers        []Peer    `json:"peers,omitempty"`
	// ContainerSessions and ContainerPeers are those of containers' own network namespaces.
	ContainerSessions []ContainerSession `json:"container_sessions,omitempty"`
	ContainerPeers    []ContainerPeer    `json:"container_peers,omitempty"`
}

// Session is one that an agent holds: it sends packets of STAMP with HMAC to another host's reflector.
type Session struct {
	Peer      string         `json:"peer"`
	Reflector netip.AddrPort `json:"reflector"`
	// Number of the session and its key.
	Number          uint16  `json:"number"`
	Key             []byte  `json:"key"`
	IntervalSeconds float64 `json:"interval_seconds"`
	// DSCP is the class of service.
	DSCP uint8 `json:"dscp,omitempty"`
}

// Interval is the time between two packets.
func (s *Session) Interval() time.Duration {
	return time.Duration(s.IntervalSeconds * float64(time.Second))
}

// Peer is who may ask an agent's reflector.
type Peer struct {
	Name string `json:"name"`
	// Addresses from which it may come. Number and Key are those of its session.
	Addresses []netip.Addr `json:"addresses"`
	Number    uint16       `json:"number"`
	Key       []byte       `json:"key"`
}

// Container is one on a host.
type Container struct {
	// ID is the agent's of that host, Name what people call it there.
	ID   string `json:"id"`
	Name string `json:"name"`
}

// ContainerSession is one between two containers. Its sender's socket is made in the network namespace of Client, which runs
// on the agent's host; Peer is the host of Server, in whose network namespace the reflector is.
type ContainerSession struct {
	Session
	Client Container `json:"client"`
	Server Container `json:"server"`
}

// ContainerPeer is who may ask a reflector at At in the network namespace of Server, which runs on the agent's host.
type ContainerPeer struct {
	Peer
	Server Container      `json:"server"`
	At     netip.AddrPort `json:"at"`
}

// Lease is how long the state holds.
func (s *State) Lease() time.Duration { return time.Duration(s.LeaseSeconds * float64(time.Second)) }

// errMessage is of a question or an answer that is out of bounds.
var errMessage = errors.New("not a message of the control channel")

// ParseQuestion reads a question. Its error says what is out of bounds.
func ParseQuestion(text []byte) (q Question, err error) {
	if err := parse(text, MaxQuestionBytes, &q); err != nil {
		return q, err
	}
	switch {
	case q.Host == "" || len(q.Host) > maxHostBytes:
		return q, fmt.Errorf("%w: a host's name of %d bytes, want 1 to %d", errMessage, len(q.Host), maxHostBytes)
	case len(q.Version) > maxVersionBytes:
		return q, fmt.Errorf("%w: a version of %d bytes, want %d at most", errMessage, len(q.Version), maxVersionBytes)
	}
	q.Addresses, err = checkAddresses(q.Addresses)
	return q, err
}

// ParseState reads an answer. Its error says what is out of bounds.
func ParseState(text []byte) (s State, err error) {
	if err := parse(text, MaxStateBytes, &s); err != nil {
		return s, err
	}
	switch {
	case s.Version == "" || len(s.Version) > maxVersionBytes:
		return s, fmt.Errorf("%w: a version of %d bytes, want 1 to %d", errMessage, len(s.Version), maxVersionBytes)
	case !(s.LeaseSeconds >= minLease.Seconds() && s.LeaseSeconds <= maxLease.Seconds()):
		return s, fmt.Errorf("%w: a lease of %v s, want %v to %v", errMessage, s.LeaseSeconds, minLease, maxLease)
	case len(s.Sessions) > MaxSessions || len(s.Peers) > MaxSessions || len(s.ContainerSessions) > MaxSessions ||
		len(s.ContainerPeers) > MaxSessions:
		return s, fmt.Errorf("%w: %d and %d sessions, %d and %d peers, want %d at most", errMessage, len(s.Sessions),
			len(s.ContainerSessions), len(s.Peers), len(s.ContainerPeers), MaxSessions)
	}
	for i := range s.Sessions {
		if err := s.Sessions[i].check(); err != nil {
			return s, err
		}
	}
	for i := range s.Peers {
		if err := s.Peers[i].check(); err != nil {
			return s, err
		}
	}
	for i := range s.ContainerSessions {
		c := &s.ContainerSessions[i]
		if err := cmp.Or(c.check(), c.Client.check(), c.Server.check()); err != nil {
			return s, err
		}
	}
	for i := range s.ContainerPeers {
		c := &s.ContainerPeers[i]
		if err := cmp.Or(c.check(), c.Server.check(), checkReflector(c.At)); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (p *Peer) check() (err error) {
	if err := checkNameAndKey(p.Name, p.Key); err != nil {
		return err
	}
	p.Addresses, err = checkAddresses(p.Addresses)
	return err
}

// maxContainerBytes bounds an ID, which may be the path of a control group, and a name, which may be that of a pod's.
const maxContainerBytes = 1024

func (c *Container) check() error {
	for _, text := range []string{c.ID, c.Name} {
		if text == "" || len(text) > maxContainerBytes {
			return fmt.Errorf("%w: a container with an ID of %d and a name of %d bytes, want 1 to %d", errMessage, len(c.ID),
				len(c.Name), maxContainerBytes)
		}
	}
	return nil
}

func checkReflector(at netip.AddrPort) error {
	if !at.IsValid() || at.Port() == 0 || !reachable(at.Addr()) {
		return fmt.Errorf("%w: a reflector at %q", errMessage, at)
	}
	return nil
}

func (s *Session) check() error {
	if err := checkNameAndKey(s.Peer, s.Key); err != nil {
		return err
	}
	if err := checkReflector(s.Reflector); err != nil {
		return err
	}
	switch {
	case !(s.IntervalSeconds >= MinInterval.Seconds() && s.IntervalSeconds <= MaxInterval.Seconds()):
		return fmt.Errorf("%w: an interval of %v s, want %v to %v", errMessage, s.IntervalSeconds, MinInterval, MaxInterval)
	case s.DSCP > 63:
		return fmt.Errorf("%w: a class of service of %d, want 63 at most", errMessage, s.DSCP)
	}
	return nil
}

func checkNameAndKey(name string, key []byte) error {
	switch {
	case name == "" || len(name) > maxHostBytes:
		return fmt.Errorf("%w: a peer's name of %d bytes, want 1 to %d", errMessage, len(name), maxHostBytes)
	case len(key) < minKeyBytes || len(key) > maxKeyBytes:
		return fmt.Errorf("%w: a key of %d bytes, want %d to %d", errMessage, len(key), minKeyBytes, maxKeyBytes)
	}
	return nil
}

// checkAddresses are the addresses without those that mean something on one host alone.
func checkAddresses(all []netip.Addr) ([]netip.Addr, error) {
	if len(all) > maxAddresses {
		return nil, fmt.Errorf("%w: %d addresses, want %d at most", errMessage, len(all), maxAddresses)
	}
	for i, a := range all {
		all[i] = a.Unmap()
	}
	return slices.DeleteFunc(all, func(a netip.Addr) bool { return !reachable(a) }), nil
}

// reachable reports whether an address may be another host's.
func reachable(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsGlobalUnicast() && a.Zone() == "" && a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// parse reads one JSON value and nothing behind it.
func parse(text []byte, most int, into any) error {
	if len(text) > most {
		return fmt.Errorf("%w: %d bytes, want %d at most", errMessage, len(text), most)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("%w: %w", errMessage, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: there is more behind it", errMessage)
	}
	return nil
}

// name gives the state the version of its contents.
func (s *State) name() {
	h := sha256.New()
	// Of these types, which have no maps, equal contents are equal text; there is no error.
	_ = json.NewEncoder(h).Encode([]any{s.Sessions, s.Peers, s.ContainerSessions, s.ContainerPeers})
	s.Version = hex.EncodeToString(h.Sum(nil)[:16])
}
