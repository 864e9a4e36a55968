package openflow

import (
	"fmt"
	"strings"
)

// Commands of an extended group modification, besides GroupAdd, GroupModify
// and GroupDelete.
const (
	GroupInsertBucket uint16 = 3
	GroupRemoveBucket uint16 = 5
)

// Places in a group's list of buckets, for CommandBucket.
const (
	BucketFirst uint32 = 0xfffffffd // insert before all others; remove the first
	BucketLast  uint32 = 0xfffffffe // insert after all others; remove the last
	BucketAll   uint32 = 0xffffffff // all buckets
)

// ExtBucket is a bucket that has an identifier.
type ExtBucket struct {
	ID uint32
	Bucket
}

// ExtGroupMod changes single buckets of a group: the group modification of
// OpenFlow 1.5 as an extension message of Open vSwitch.
//
// Not every switch accepts the message with OpenFlow 1.3. Open vSwitch 3.1 itself accepts it with
// OpenFlow 1.0 only, and answers with BadRequestExpType with 1.3. The sender then has to replace
// the whole group with a GroupMod.
type ExtGroupMod struct {
	Command       uint16
	Type          GroupType
	Group         uint32
	CommandBucket uint32 // insert after this one; remove this one
	Buckets       []ExtBucket
	Properties    []byte // of the group; not decoded
}

// Bucket properties of OpenFlow 1.5.
const (
	bucketWeight     = 0
	bucketWatchPort  = 1
	bucketWatchGroup = 2
)

const extBucketHeader = 8

// MsgType returns TypeExperimenter.
func (*ExtGroupMod) MsgType() MsgType { return TypeExperimenter }

// AppendTo appends the message to b.
func (m *ExtGroupMod) AppendTo(b []byte, xid uint32) ([]byte, error) {
	start := len(b)
	b = beginExperimenter(b, ExperimenterNicira, expGroupMod, xid)
	b = put16(b, m.Command)
	b = append(b, byte(m.Type), 0)
	b = put32(b, m.Group)
	b = pad(b, 4)
	b = put32(b, m.CommandBucket)
	array := len(b)
	var err error
	for i := range m.Buckets {
		if b, err = m.Buckets[i].append(b, m.Type); err != nil {
			return b[:start], err
		}
	}
	if n := len(b) - array; n <= MaxMessage {
		be.PutUint16(b[array-8:], uint16(n))
	}
	return finish(append(b, m.Properties...), start, nil)
}

func (k *ExtBucket) append(b []byte, t GroupType) ([]byte, error) {
	start := len(b)
	b = pad(b, 4)
	b = put32(b, k.ID)
	b, err := appendActions(b, k.Actions)
	if err != nil {
		return b, err
	}
	be.PutUint16(b[start+2:], uint16(len(b)-start-extBucketHeader))
	if t == GroupTypeSelect || k.Weight != 0 {
		b = pad(put16(append(b, 0, bucketWeight, 0, 8), k.Weight), 2)
	}
	if k.WatchPort != PortAny {
		b = put32(append(b, 0, bucketWatchPort, 0, 8), k.WatchPort)
	}
	if k.WatchGroup != GroupAny {
		b = put32(append(b, 0, bucketWatchGroup, 0, 8), k.WatchGroup)
	}
	setLen16(b, start, 0)
	return b, nil
}

// Decode reads the message.
func (m *ExtGroupMod) Decode(b []byte) error {
	p, err := experimenterBody(b, "EXT_GROUP_MOD", ExperimenterNicira, expGroupMod, 16)
	if err != nil {
		return err
	}
	n, rest := int(be.Uint16(p[8:])), p[16:]
	if n > len(rest) {
		return badLength("EXT_GROUP_MOD", headerSize+16, "buckets of %d bytes, %d are left", n, len(rest))
	}
	*m = ExtGroupMod{
		Command: be.Uint16(p), Type: GroupType(p[2]), Group: be.Uint32(p[4:]),
		CommandBucket: be.Uint32(p[12:]), Properties: rest[n:],
	}
	it := iterate(rest[:n], &extBucketShape)
	for it.step() {
		var k ExtBucket
		if err := k.decode(it.elem, it.at); err != nil {
			return err
		}
		m.Buckets = append(m.Buckets, k)
	}
	if it.err != nil {
		return it.err
	}
	return checkProperties(m.Properties)
}

func (k *ExtBucket) decode(b []byte, at int) (err error) {
	n, rest := int(be.Uint16(b[2:])), b[extBucketHeader:]
	if n > len(rest) {
		return badLength("bucket", at, "actions of %d bytes, %d are left", n, len(rest))
	}
	*k = ExtBucket{ID: be.Uint32(b[4:]), Bucket: NewBucket()}
	if k.Actions, err = parseActions(nil, rest[:n]); err != nil {
		return err
	}
	it := iterate(rest[n:], &propertyShape)
	for it.step() {
		if len(it.elem) < 8 {
			return badLength("bucket property", it.at, "%d, want 8", len(it.elem))
		}
		switch be.Uint16(it.elem) {
		case bucketWeight:
			k.Weight = be.Uint16(it.elem[4:])
		case bucketWatchPort:
			k.WatchPort = be.Uint32(it.elem[4:])
		case bucketWatchGroup:
			k.WatchGroup = be.Uint32(it.elem[4:])
		}
	}
	return it.err
}

// String describes the message.
func (m *ExtGroupMod) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "EXT_GROUP_MOD %s group=%s type=%v command_bucket=%s",
		name8(m.Command, "add", "modify", "delete", "insert_bucket", "unknown(4)", "remove_bucket"),
		groupName(m.Group), m.Type, bucketName(m.CommandBucket))
	for _, k := range m.Buckets {
		fmt.Fprintf(&s, " bucket_id=%d%s", k.ID, bucketList([]Bucket{k.Bucket}))
	}
	if len(m.Properties) > 0 {
		fmt.Fprintf(&s, " properties=%d bytes", len(m.Properties))
	}
	return s.String()
}

func bucketName(id uint32) string {
	switch id {
	case BucketFirst:
		return "first"
	case BucketLast:
		return "last"
	case BucketAll:
		return "all"
	}
	return fmt.Sprint(id)
}
