package openflow

import (
	"fmt"
	"slices"
	"strings"
)

// Counter counts the packets of a bucket or meter band.
type Counter struct{ Packets, Bytes uint64 }

const counterSize = 16

func appendCounters(b []byte, counters []Counter) []byte {
	for _, c := range counters {
		b = put64(put64(b, c.Packets), c.Bytes)
	}
	return b
}

func parseCounter(b []byte) Counter { return Counter{be.Uint64(b), be.Uint64(b[8:])} }

func counterList(name string, counters []Counter) string {
	var s strings.Builder
	for i, c := range counters {
		fmt.Fprintf(&s, " %s%d={packets=%s bytes=%s}", name, i, count(c.Packets), count(c.Bytes))
	}
	return s.String()
}

// GroupStats counts the packets of a group and of its buckets.
type GroupStats struct {
	Group    uint32
	RefCount uint32 // entries and groups that refer to it
	Counter
	Duration Duration
	Buckets  []Counter
}

const groupStatsHeader = 40

// GroupStatsReply answers a GroupStatsRequest.
type GroupStatsReply []GroupStats

// MultipartType returns MultipartGroup.
func (*GroupStatsReply) MultipartType() MultipartType { return MultipartGroup }

func (r *GroupStatsReply) append(b []byte) ([]byte, error) {
	for _, g := range *r {
		start := len(b)
		b = put32(put32(pad(b, 4), g.Group), g.RefCount)
		b = put64(put64(pad(b, 4), g.Packets), g.Bytes)
		b = appendCounters(g.Duration.append(b), g.Buckets)
		setLen16(b, start, 0)
	}
	return b, nil
}

func (r *GroupStatsReply) decode(b []byte) error {
	it := iterate(b, &groupStatsShape)
	for it.step() {
		e := it.elem
		buckets, err := parseRecords("bucket counter", e[groupStatsHeader:], counterSize, parseCounter)
		if err != nil {
			return err
		}
		*r = append(*r, GroupStats{
			Group: be.Uint32(e[4:]), RefCount: be.Uint32(e[8:]), Counter: parseCounter(e[16:]),
			Duration: parseDuration(e[32:]), Buckets: buckets,
		})
	}
	return it.err
}

// String describes the group's counters.
func (g GroupStats) String() string {
	return fmt.Sprintf("group=%s ref_count=%d packets=%s bytes=%s duration=%v%s", groupName(g.Group), g.RefCount,
		count(g.Packets), count(g.Bytes), g.Duration, counterList("bucket", g.Buckets))
}

// String describes the body.
func (r *GroupStatsReply) String() string { return list(*r) }

// GroupDesc describes a group.
type GroupDesc struct {
	Type    GroupType
	Group   uint32
	Buckets []Bucket
}

// GroupDescReply answers a GroupDescRequest.
type GroupDescReply []GroupDesc

// MultipartType returns MultipartGroupDesc.
func (*GroupDescReply) MultipartType() MultipartType { return MultipartGroupDesc }

func (r *GroupDescReply) append(b []byte) (_ []byte, err error) {
	for _, g := range *r {
		start := len(b)
		b = put32(append(b, 0, 0, byte(g.Type), 0), g.Group)
		if b, err = appendBuckets(b, g.Buckets); err != nil {
			return b, err
		}
		setLen16(b, start, 0)
	}
	return b, nil
}

func (r *GroupDescReply) decode(b []byte) error {
	it := iterate(b, &groupDescShape)
	for it.step() {
		buckets, err := parseBuckets(it.elem[8:])
		if err != nil {
			return err
		}
		*r = append(*r, GroupDesc{Type: GroupType(it.elem[2]), Group: be.Uint32(it.elem[4:]), Buckets: buckets})
	}
	return it.err
}

// String describes the group.
func (g GroupDesc) String() string {
	return fmt.Sprintf("group=%s type=%v%s", groupName(g.Group), g.Type, bucketList(g.Buckets))
}

// String describes the body.
func (r *GroupDescReply) String() string { return list(*r) }

// Capabilities of a switch's groups.
const (
	GroupCapSelectWeight   uint32 = 1 << 0
	GroupCapSelectLiveness uint32 = 1 << 1
	GroupCapChaining       uint32 = 1 << 2
	GroupCapChainingChecks uint32 = 1 << 3
)

var groupCapNames = []string{"select_weight", "select_liveness", "chaining", "chaining_checks"}

// GroupFeatures describes the groups that a switch supports. The arrays are indexed by
// GroupType.
type GroupFeatures struct {
	Types        uint32 // bits by GroupType
	Capabilities uint32
	MaxGroups    [4]uint32
	Actions      [4]uint32 // bits by ActionType
}

// MultipartType returns MultipartGroupFeatures.
func (*GroupFeatures) MultipartType() MultipartType { return MultipartGroupFeatures }

func (g *GroupFeatures) append(b []byte) ([]byte, error) {
	b = put32(put32(b, g.Types), g.Capabilities)
	for _, v := range slices.Concat(g.MaxGroups[:], g.Actions[:]) {
		b = put32(b, v)
	}
	return b, nil
}

func (g *GroupFeatures) decode(b []byte) error {
	if err := exactly("group features", b, 40); err != nil {
		return err
	}
	g.Types, g.Capabilities = be.Uint32(b), be.Uint32(b[4:])
	for i := range 4 {
		g.MaxGroups[i], g.Actions[i] = be.Uint32(b[8+4*i:]), be.Uint32(b[24+4*i:])
	}
	return nil
}

// String describes the body.
func (g *GroupFeatures) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "capabilities=%s", bitNames(uint64(g.Capabilities), groupCapNames))
	for t := range GroupType(4) {
		if g.Types&(1<<t) != 0 {
			fmt.Fprintf(&s, " %v={max=%d actions=%#x}", t, g.MaxGroups[t], g.Actions[t])
		}
	}
	return s.String()
}
