package openflow

import (
	"fmt"
	"strings"
)

// GroupType determines which buckets of a group process a packet.
type GroupType uint8

// The group types of OpenFlow 1.3.
const (
	GroupTypeAll          GroupType = 0 // every bucket
	GroupTypeSelect       GroupType = 1 // one, chosen by the switch, by weight
	GroupTypeIndirect     GroupType = 2 // the only one
	GroupTypeFastFailover GroupType = 3 // the first that is live
)

// String returns the type's name.
func (t GroupType) String() string { return name8(uint8(t), "all", "select", "indirect", "ff") }

// Commands of a group modification.
const (
	GroupAdd    uint16 = 0
	GroupModify uint16 = 1
	GroupDelete uint16 = 2
)

// Bucket is a list of actions that a group may apply to a packet.
type Bucket struct {
	Weight     uint16 // select groups
	WatchPort  uint32 // fast failover: the bucket is live while this port is; PortAny: none
	WatchGroup uint32 // fast failover: the bucket is live while this group is; GroupAny: none
	Actions    []Action
}

// NewBucket returns a bucket that is always live.
func NewBucket(actions ...Action) Bucket {
	return Bucket{WatchPort: PortAny, WatchGroup: GroupAny, Actions: actions}
}

func appendBuckets(b []byte, buckets []Bucket) ([]byte, error) {
	var err error
	for i := range buckets {
		k := &buckets[i]
		start := len(b)
		b = pad(b, 2)
		b = put16(b, k.Weight)
		b = put32(b, k.WatchPort)
		b = put32(b, k.WatchGroup)
		b = pad(b, 4)
		if b, err = appendActions(b, k.Actions); err != nil {
			return b, err
		}
		setLen16(b, start, 0)
	}
	return b, nil
}

func parseBuckets(b []byte) ([]Bucket, error) {
	var buckets []Bucket
	it := iterate(b, &bucketShape)
	for it.step() {
		e := it.elem
		actions, err := parseActions(nil, e[16:])
		if err != nil {
			return nil, err
		}
		buckets = append(buckets, Bucket{Weight: be.Uint16(e[2:]), WatchPort: be.Uint32(e[4:]), WatchGroup: be.Uint32(e[8:]), Actions: actions})
	}
	return buckets, it.err
}

// GroupMod adds, changes or deletes a group.
type GroupMod struct {
	Command uint16
	Type    GroupType
	Group   uint32
	Buckets []Bucket
}

// MsgType returns TypeGroupMod.
func (*GroupMod) MsgType() MsgType { return TypeGroupMod }

// AppendTo appends the message to b.
func (m *GroupMod) AppendTo(b []byte, xid uint32) ([]byte, error) {
	start := len(b)
	b = begin(b, TypeGroupMod, xid)
	b = put16(b, m.Command)
	b = append(b, byte(m.Type), 0)
	b = put32(b, m.Group)
	b, err := appendBuckets(b, m.Buckets)
	return finish(b, start, err)
}

// Decode reads the message.
func (m *GroupMod) Decode(b []byte) error {
	p, err := body(b, TypeGroupMod)
	if err != nil {
		return err
	}
	m.Command, m.Type, m.Group = be.Uint16(p), GroupType(p[2]), be.Uint32(p[4:])
	m.Buckets, err = parseBuckets(p[8:])
	return err
}

// String describes the message.
func (m *GroupMod) String() string {
	return fmt.Sprintf("GROUP_MOD %s group=%s type=%v%s", name8(m.Command, "add", "modify", "delete"),
		groupName(m.Group), m.Type, bucketList(m.Buckets))
}

func bucketList(buckets []Bucket) string {
	var s strings.Builder
	for _, k := range buckets {
		s.WriteString(" bucket={")
		if k.Weight != 0 {
			fmt.Fprintf(&s, "weight=%d ", k.Weight)
		}
		if k.WatchPort != PortAny {
			fmt.Fprintf(&s, "watch_port=%s ", PortName(k.WatchPort))
		}
		if k.WatchGroup != GroupAny {
			fmt.Fprintf(&s, "watch_group=%s ", groupName(k.WatchGroup))
		}
		fmt.Fprintf(&s, "actions=%s}", actionList(k.Actions))
	}
	return s.String()
}
