package rule

import (
	"fmt"
	"hash/fnv"
)

// Magic is the first byte of every cookie that Sluice writes.
const Magic = 0x5c

// Cookie identifies a rule on the wire: 8 bits of magic, 16 bits that hash the
// owner's name, 16 bits of generation (one per controller start) and 24 bits of
// rule number.
type Cookie uint64

// OwnerMask selects the magic and the owner of a cookie: with it, one OpenFlow request addresses
// all rules of an owner, of any generation.
const OwnerMask uint64 = 0xffffff0000000000

// MagicMask selects the magic only: it addresses the rules of all owners.
const MagicMask uint64 = 0xff00000000000000

// MakeCookie returns the cookie with the given parts. It uses the lower 24 bits of number.
func MakeCookie(owner, generation uint16, number uint32) Cookie {
	return Cookie(uint64(Magic)<<56 | uint64(owner)<<40 | uint64(generation)<<24 | uint64(number&0xffffff))
}

// OwnerHash returns the 16-bit hash of an owner's name that cookies contain.
func OwnerHash(name string) uint16 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	s := h.Sum32()
	return uint16(s>>16) ^ uint16(s)
}

// Ours reports whether a Sluice controller made the cookie.
func (c Cookie) Ours() bool { return c>>56 == Magic }

// Owner returns the hash of the owner's name.
func (c Cookie) Owner() uint16 { return uint16(c >> 40) }

// Generation returns the number of the controller start in which the rule was written.
func (c Cookie) Generation() uint16 { return uint16(c >> 24) }

// Number returns the rule's number within its owner and generation.
func (c Cookie) Number() uint32 { return uint32(c) & 0xffffff }

// String formats the cookie as Open vSwitch does.
func (c Cookie) String() string { return fmt.Sprintf("%#x", uint64(c)) }

// GroupID returns a group number that identifies its owner, because groups have no cookie: 8
// bits of magic, the low 8 bits of the owner's hash, 16 bits of the owner's choice.
func GroupID(owner uint16, number uint16) uint32 {
	return uint32(Magic)<<24 | uint32(owner&0xff)<<16 | uint32(number)
}

// GroupOurs reports whether a group number was made by GroupID.
func GroupOurs(id uint32) bool { return id>>24 == Magic }

// GroupOf reports whether a group number was made for the owner.
func GroupOf(id uint32, owner uint16) bool { return GroupOurs(id) && uint16(id>>16)&0xff == owner&0xff }
