package openflow

import (
	"bytes"
	"fmt"
)

// BundleOp is the operation that a BundleControl requests or answers.
type BundleOp uint16

// The operations on bundles. Each request has its reply.
const (
	BundleOpenRequest    BundleOp = 0
	BundleOpenReply      BundleOp = 1
	BundleCloseRequest   BundleOp = 2
	BundleCloseReply     BundleOp = 3
	BundleCommitRequest  BundleOp = 4
	BundleCommitReply    BundleOp = 5
	BundleDiscardRequest BundleOp = 6
	BundleDiscardReply   BundleOp = 7
)

// String returns the operation's name.
func (o BundleOp) String() string {
	return name8(uint16(o), "open_request", "open_reply", "close_request", "close_reply",
		"commit_request", "commit_reply", "discard_request", "discard_reply")
}

// Flags of a bundle.
const (
	BundleAtomic  uint16 = 1 << 0 // all of it or nothing, also for packets
	BundleOrdered uint16 = 1 << 1 // in the order given
)

var bundleFlagNames = []string{"atomic", "ordered"}

// BundleControl opens, closes, commits or discards a bundle: a set of changes that a switch
// makes together or not at all. It is ONF extension 230, which brings the bundles of OpenFlow
// 1.4 to 1.3.
type BundleControl struct {
	Bundle     uint32
	Op         BundleOp
	Flags      uint16
	Properties []byte // not decoded
}

// MsgType returns TypeExperimenter.
func (*BundleControl) MsgType() MsgType { return TypeExperimenter }

// AppendTo appends the message to b.
func (m *BundleControl) AppendTo(b []byte, xid uint32) ([]byte, error) {
	start := len(b)
	b = beginExperimenter(b, ExperimenterONF, expBundleControl, xid)
	b = put32(b, m.Bundle)
	b = put16(put16(b, uint16(m.Op)), m.Flags)
	return finish(append(b, m.Properties...), start, nil)
}

// Decode reads the message.
func (m *BundleControl) Decode(b []byte) error {
	p, err := experimenterBody(b, "BUNDLE_CONTROL", ExperimenterONF, expBundleControl, 8)
	if err != nil {
		return err
	}
	*m = BundleControl{Bundle: be.Uint32(p), Op: BundleOp(be.Uint16(p[4:])), Flags: be.Uint16(p[6:]), Properties: p[8:]}
	return checkProperties(m.Properties)
}

func checkProperties(b []byte) error {
	it := iterate(b, &propertyShape)
	for it.step() {
	}
	return it.err
}

// String describes the message.
func (m *BundleControl) String() string {
	return fmt.Sprintf("BUNDLE_CONTROL bundle=%d %v flags=%s properties=%d bytes", m.Bundle, m.Op, bitNames(uint64(m.Flags), bundleFlagNames), len(m.Properties))
}

// BundleAdd adds a message to an open bundle.
type BundleAdd struct {
	Bundle     uint32
	Flags      uint16  // the flags with which the bundle was opened
	Message    Message // the change; it is sent with the same transaction identifier
	Properties []byte  // not decoded
}

// MsgType returns TypeExperimenter.
func (*BundleAdd) MsgType() MsgType { return TypeExperimenter }

// AppendTo appends the message to b.
func (m *BundleAdd) AppendTo(b []byte, xid uint32) ([]byte, error) {
	start := len(b)
	if m.Message == nil {
		return b, fmt.Errorf("openflow: BUNDLE_ADD: %w: no message", ErrValue)
	}
	b = beginExperimenter(b, ExperimenterONF, expBundleAdd, xid)
	b = pad(put32(b, m.Bundle), 2)
	b = put16(b, m.Flags)
	inner := len(b)
	b, err := m.Message.AppendTo(b, xid)
	if err != nil {
		return b[:start], fmt.Errorf("bundle %d: %w", m.Bundle, err)
	}
	if len(m.Properties) > 0 {
		b = append(padTo8(b, inner), m.Properties...)
	}
	return finish(b, start, nil)
}

// Decode reads the message and the message in it. Bundles are not nested.
func (m *BundleAdd) Decode(b []byte) error {
	p, err := experimenterBody(b, "BUNDLE_ADD", ExperimenterONF, expBundleAdd, 8+headerSize)
	if err != nil {
		return err
	}
	inner, h, err := innerMessage(p[8:], XID(b))
	if err != nil {
		return err
	}
	_, msg, err := Decode(inner)
	if err != nil {
		return fmt.Errorf("bundle: %w", err)
	}
	*m = BundleAdd{Bundle: be.Uint32(p), Flags: be.Uint16(p[6:]), Message: msg}
	if rest := p[8:]; len(rest) > int(h.Length) {
		if roundUp8(int(h.Length)) > len(rest) {
			return badLength("BUNDLE_ADD", len(b), "padding after the message is cut short")
		}
		m.Properties = rest[roundUp8(int(h.Length)):]
	}
	return checkProperties(m.Properties)
}

// innerMessage returns the contained message.
func innerMessage(b []byte, xid uint32) ([]byte, Header, error) {
	h, err := ParseHeader(b)
	if err != nil {
		return nil, h, fmt.Errorf("bundle: %w", err)
	}
	if int(h.Length) > len(b) {
		return nil, h, badLength("BUNDLE_ADD", 2, "inner message of %d bytes, %d are left", h.Length, len(b))
	}
	if h.XID != xid {
		return nil, h, badValue("BUNDLE_ADD", 4, "inner transaction %#x, outer %#x", h.XID, xid)
	}
	inner := b[:h.Length:h.Length]
	if h.Type == TypeExperimenter && len(inner) >= 16 && bytes.Equal(inner[8:16], bundleAddID) {
		return nil, h, badValue("BUNDLE_ADD", 8, "a bundle within a bundle")
	}
	return inner, h, nil
}

var bundleAddID = put32(put32(nil, ExperimenterONF), expBundleAdd)

// String describes the message.
func (m *BundleAdd) String() string {
	return fmt.Sprintf("BUNDLE_ADD bundle=%d flags=%s %v", m.Bundle, bitNames(uint64(m.Flags), bundleFlagNames), m.Message)
}
