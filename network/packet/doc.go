// Package packet reads the headers of Ethernet frames and builds the few frames
// that a controller sends itself.
//
// [Headers] is filled by one pass over the frame, without allocating, and is a
// plain value that may be copied and kept. It goes as deep as the frame does: an
// error says why reading stopped, and everything before that point is valid. A
// frame cut short by a switch's packet-in limit is the common case, not a fault.
//
// The builders append to a caller's buffer and fill in lengths and checksums.
package packet
