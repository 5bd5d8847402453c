package ingest

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/otlptranslator"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/proto"

	"outsight/internal/model"
	"outsight/internal/otlp"
	"outsight/internal/store"
)

// TenantLabel is the label that a request's tenant becomes.
const TenantLabel = "tenant"

// origin is a decoded resource: the labels that all of its points share.
type origin struct {
	number uint64
	// ours means that names are not translated.
	ours   bool
	tenant string
	// labels that each point has, and those of target_info; nil where there is none.
	labels, target []model.Label
	bad            bool
}

// labelSet is the labels of points, and the attributes they were made from. All metrics whose points have the same
// attributes share it: an edge or a container has some thirty series, and a set for each would be most of a Decoder's
// memory.
type labelSet struct {
	origin *origin
	// raw attributes; the values of labels are parts of it.
	raw    string
	labels []model.Label
	// bytes of the labels, as the store counts them, without the series' name.
	bytes int64
	// number of the set, of its own in this process.
	number uint64
	bad    bool
	// parts of the metrics of which a point is several series.
	parts map[*metric]*partSet
	next  *labelSet
}

// partSet is the parts that a point with certain bounds is stored as.
type partSet struct {
	bounds []uint64
	parts  []part
}

// setNumbers numbers the sets of labels. The number of a set and that of a metric are the key of a series.
var setNumbers atomic.Uint64

// metricBits of a series' key identify the metric, the others the set of labels.
const metricBits = 24

// key identifies the series of a metric with the labels of s; 0 if there are too many metrics for that.
func (s *labelSet) key(m *metric) uint64 {
	if m.number >= 1<<metricBits {
		return 0
	}
	return s.number<<metricBits | m.number
}

// set finds or makes the labels of a point.
func (r *reading) set(raw []byte, field int32) (*labelSet, error) {
	if len(raw) > maxRemembered {
		return &labelSet{bad: true}, nil
	}
	hash := maphash.Bytes(r.seed, raw) ^ r.origin.number*0x9e3779b97f4a7c15
	for s := r.recent[hash]; s != nil; s = s.next {
		if s.origin == r.origin && s.raw == string(raw) {
			return s, nil
		}
	}
	for s := r.older[hash]; s != nil; s = s.next {
		if s.origin == r.origin && s.raw == string(raw) {
			again := *s
			// Some of the parts may be of metrics that were evicted; those are made again.
			again.next, again.parts = r.recent[hash], nil
			r.hold(setBytes + len(raw) + labelBytes*cap(s.labels))
			r.recent[hash] = &again
			return &again, nil
		}
	}
	s := &labelSet{origin: r.origin, raw: string(raw), number: setNumbers.Add(1)}
	pairs, ok, err := attributes(raw, s.raw, field, r.limits.Labels)
	if err != nil {
		return nil, err
	}
	if ok {
		s.labels, ok = r.build(r.origin, pairs)
	}
	s.bad = !ok
	for _, l := range s.labels {
		s.bytes += int64(len(l.Name)+len(l.Value)) + store.LabelOverhead
	}
	r.hold(setBytes + len(raw) + labelBytes*cap(s.labels))
	s.next = r.recent[hash]
	r.recent[hash] = s
	return s, nil
}

// build makes the labels of a point from its attributes and those of its resource.
func (d *Decoder) build(from *origin, pairs []model.Label) (labels []model.Label, ok bool) {
	if from.bad || len(pairs)+len(from.labels) > d.limits.Labels {
		return nil, false
	}
	labels = make([]model.Label, 0, len(pairs)+len(from.labels))
	for _, p := range pairs {
		name := p.Name
		if !from.ours {
			if name, ok = labelName(name); !ok {
				return nil, false
			}
		} else if !isLabelName(name) {
			return nil, false
		}
		if p.Value == "" || len(name) > maxNameBytes {
			if p.Value != "" {
				return nil, false
			}
			continue
		}
		if i := indexOf(labels, name); i >= 0 {
			if from.ours {
				return nil, false
			}
			// Two attributes may have one name once their dots are replaced.
			labels[i].Value = otlp.Label(name, labels[i].Value+";"+p.Value).Value
			continue
		}
		labels = append(labels, otlp.Label(name, p.Value))
	}
	for _, l := range from.labels {
		if i := indexOf(labels, l.Name); i >= 0 {
			labels[i] = l
		} else {
			labels = append(labels, l)
		}
	}
	sortLabels(labels)
	bytes := 0
	for _, l := range labels {
		bytes += len(l.Name) + len(l.Value)
	}
	return labels, bytes <= d.limits.LabelBytes
}

func indexOf(labels []model.Label, name string) int {
	return slices.IndexFunc(labels, func(l model.Label) bool { return l.Name == name })
}

func sortLabels(labels []model.Label) {
	slices.SortFunc(labels, func(a, b model.Label) int { return strings.Compare(a.Name, b.Name) })
}

// insert is labels with one more, or with another value of it.
func insert(labels []model.Label, name, value string) []model.Label {
	all := make([]model.Label, 0, len(labels)+1)
	for _, l := range labels {
		if l.Name != name {
			all = append(all, l)
		}
	}
	all = append(all, model.Label{Name: name, Value: value})
	sortLabels(all)
	return all
}

var labelNamer = otlptranslator.LabelNamer{}

func labelName(attribute string) (string, bool) {
	name, err := labelNamer.Build(attribute)
	return name, err == nil && isLabelName(name)
}

func isLabelName(name string) bool {
	if name == "" || strings.HasPrefix(name, "__") {
		return false
	}
	for i, c := range []byte(name) {
		if !(c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || i > 0 && c >= '0' && c <= '9') {
			return false
		}
	}
	return true
}

// originOf finds or makes the origin of a resource.
func (r *reading) originOf(about []byte, tenant string, ours bool) (*origin, error) {
	if len(about) > maxRemembered {
		return nil, fmt.Errorf("%w: a resource with %d bytes of attributes, want at most %d", ErrMalformed, len(about),
			maxRemembered)
	}
	of := 0
	key := "foreign\x00"
	if ours {
		of, key = 1, "ours\x00"
	}
	if o := r.ofResource[of]; o != nil {
		return o, nil
	}
	key += tenant + "\x00" + string(about)
	if o := r.origins[key]; o != nil {
		r.ofResource[of] = o
		return o, nil
	}
	pairs, ok, err := attributes(about, string(about), 1, maxAttributes)
	if err != nil {
		return nil, err
	}
	r.numbers++
	o := &origin{number: r.numbers, ours: ours, tenant: tenant, bad: !ok}
	if ours {
		o.fromAgent(pairs)
	} else {
		o.fromResource(pairs, r.limits.Labels)
	}
	if tenant != "" {
		o.labels = insert(o.labels, TenantLabel, tenant)
		if o.target != nil {
			o.target = insert(o.target, TenantLabel, tenant)
		}
	}
	r.origins[key], r.ofResource[of] = o, o
	r.holdOrigin(setBytes + 2*len(key) + labelBytes*(len(o.labels)+len(o.target)))
	return o, nil
}

func (o *origin) fromAgent(pairs []model.Label) {
	for _, p := range pairs {
		if p.Name == otlp.HostAttribute && p.Value != "" {
			o.labels = []model.Label{otlp.Label(otlp.LabelHost, p.Value)}
		}
	}
}

// fromResource makes job and instance of the service's name and instance, as Prometheus does; the other
// attributes become labels of the series target_info alone.
func (o *origin) fromResource(pairs []model.Label, most int) {
	var service, namespace, instance string
	var others []model.Label
	for _, p := range pairs {
		switch p.Name {
		case "service.name":
			service = p.Value
		case "service.namespace":
			namespace = p.Value
		case "service.instance.id":
			instance = p.Value
		default:
			if name, ok := labelName(p.Name); ok && p.Value != "" && len(others) < most-3 && indexOf(others, name) < 0 {
				others = append(others, otlp.Label(name, p.Value))
			}
		}
	}
	job := service
	if namespace != "" && service != "" {
		job = namespace + "/" + service
	}
	for name, value := range map[string]string{"job": job, "instance": instance} {
		if value != "" {
			o.labels = append(o.labels, otlp.Label(name, value))
		}
	}
	sortLabels(o.labels)
	if len(o.labels) > 0 && len(others) > 0 {
		o.target = others
		for _, l := range o.labels {
			o.target = insert(o.target, l.Name, l.Value)
		}
		sortLabels(o.target)
	}
}

// targetInfo adds the series target_info with the other attributes of the current resource.
func (r *reading) targetInfo() {
	if o := r.origin; o.target != nil && !o.bad {
		r.add(model.Series{Name: "target_info", Labels: o.target, Kind: model.Gauge, Time: time.UnixMilli(r.last), Value: 1})
	}
}

// attributes reads the KeyValues that are field of the message b, unless they are more than most or one is a list that
// is too large; all is b as text, which the pairs keep parts of.
func attributes(b []byte, all string, field int32, most int) (pairs []model.Label, ok bool, err error) {
	f := fields{remaining: b}
	for f.next() {
		if f.typ != 2 || int32(f.num) != field {
			continue
		}
		var p model.Label
		end := len(all) - len(f.remaining)
		kv := fields{remaining: f.bytes}
		for kv.next() {
			// Where a part of the pair lies in all.
			to := end - len(kv.remaining)
			switch {
			case kv.message(1):
				p.Name = all[to-len(kv.bytes) : to]
			case kv.message(2):
				p.Value, err = anyValue(kv.bytes, all[to-len(kv.bytes):to])
				if errors.Is(err, errNested) {
					return nil, false, nil
				}
				if err != nil {
					return nil, false, err
				}
			}
		}
		if err := check(&kv); err != nil {
			return nil, false, err
		}
		if len(pairs) == most {
			return nil, false, nil
		}
		pairs = append(pairs, p)
	}
	return pairs, true, check(&f)
}

// errNested is of a list with more in it than is worth to become a label.
var errNested = errors.New("a list that is too large")

// anyValue is an attribute's value as text; text is b.
func anyValue(b []byte, text string) (value string, err error) {
	f := fields{remaining: b}
	for f.next() {
		switch {
		case f.message(1):
			to := len(text) - len(f.remaining)
			value = text[to-len(f.bytes) : to]
		case f.varint(2):
			value = strconv.FormatBool(f.number != 0)
		case f.varint(3):
			value = strconv.FormatInt(int64(f.number), 10)
		case f.fixed(4):
			value = floatText(f.double())
		case f.message(5), f.message(6):
			if len(b) > maxNested {
				return "", errNested
			}
			var v commonpb.AnyValue
			if proto.Unmarshal(b, &v) != nil {
				f.bad = true
				continue
			}
			whole, err := json.Marshal(plain(&v, 0))
			if err != nil {
				f.bad = true
			}
			value = string(whole)
		case f.message(7):
			value = base64.StdEncoding.EncodeToString(f.bytes)
		}
	}
	return value, check(&f)
}

func floatText(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1e15 {
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// maxDepth is how deep lists in an attribute are followed.
const maxDepth = 8

func plain(v *commonpb.AnyValue, depth int) any {
	if depth > maxDepth {
		return nil
	}
	switch v := v.GetValue().(type) {
	case *commonpb.AnyValue_StringValue:
		return v.StringValue
	case *commonpb.AnyValue_BoolValue:
		return v.BoolValue
	case *commonpb.AnyValue_IntValue:
		return v.IntValue
	case *commonpb.AnyValue_DoubleValue:
		if math.IsNaN(v.DoubleValue) || math.IsInf(v.DoubleValue, 0) {
			return floatText(v.DoubleValue)
		}
		return v.DoubleValue
	case *commonpb.AnyValue_BytesValue:
		return v.BytesValue
	case *commonpb.AnyValue_ArrayValue:
		all := []any{}
		for _, item := range v.ArrayValue.GetValues() {
			all = append(all, plain(item, depth+1))
		}
		return all
	case *commonpb.AnyValue_KvlistValue:
		all := map[string]any{}
		for _, item := range v.KvlistValue.GetValues() {
			all[item.GetKey()] = plain(item.GetValue(), depth+1)
		}
		return all
	}
	return nil
}
