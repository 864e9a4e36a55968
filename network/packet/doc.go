// Package packet parses the headers of Ethernet frames and builds the few frames that a
// controller sends itself.
//
// [Headers] is filled by one pass over the frame, without allocating, and is a plain value that
// may be copied and kept. Parsing goes as far as it can: an error says why it stopped, and
// everything before that point is valid. A frame cut short by a switch's packet-in limit is
// common, and no fault.
//
// The builders append to a caller's buffer and fill in lengths and checksums. Start reading with
// headers.go.
package packet
