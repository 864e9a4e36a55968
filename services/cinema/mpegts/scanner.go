// Package mpegts follows an MPEG transport stream (ISO/IEC 13818-1) without decoding it: which
// packets are picture and which are sound, by the stream's tables, and when they are to be shown.
// It reads no clock and starts no goroutines.
package mpegts

import "slices"

// PacketSize is the length of a packet in bytes.
const PacketSize = 188

const (
	sync      = 0x47
	nullPID   = 0x1fff
	maxTable  = 1024 // bytes of a section of the tables that are read here
	tablePAT  = 0
	tablePMT  = 2
	stampMask = 1<<33 - 1
)

// Kind says what a packet contains.
type Kind uint8

// Kinds of packets.
const (
	Other Kind = iota // a packet of none of the kinds below
	Table             // a table that is needed to find picture and sound
	Picture
	Sound
)

// Packet describes a packet.
type Packet struct {
	Kind Kind
	// Begins reports whether a unit of picture or sound starts with the packet. Key reports whether
	// a decoder can begin with this unit.
	Begins, Key bool
	// Time is the time at which the unit that the packet starts is to be decoded, in units of
	// 1/90000 s. It wraps around after 33 bits. Timed reports whether it is known.
	Time  int64
	Timed bool
}

// Stream is one elementary stream of the program.
type Stream struct {
	PID uint16 // 0: the program has no such stream
	// Type is the stream type of the program map table.
	Type byte
}

// Scanner follows the tables of a stream, and the first picture and the first sound of its first
// program. The zero value is ready to use.
type Scanner struct {
	picture, sound Stream
	mapPID         uint16 // of the program map table; 0 if it is not known
	pat, pmt       section
}

// Picture returns the stream of pictures.
func (s *Scanner) Picture() Stream { return s.picture }

// Sound returns the stream of sound.
func (s *Scanner) Sound() Stream { return s.sound }

// Scan describes the next packet. A packet that is not PacketSize bytes long, or does not start
// with the sync byte, is Other.
func (s *Scanner) Scan(p []byte) Packet {
	if len(p) != PacketSize || p[0] != sync {
		return Packet{}
	}
	pid := uint16(p[1]&0x1f)<<8 | uint16(p[2])
	begins := p[1]&0x40 != 0
	payload, random := payloadOf(p)
	switch {
	case pid == 0:
		if table := s.pat.add(payload, begins, tablePAT); table != nil {
			s.readPAT(table)
		}
		return Packet{Kind: Table}
	case pid == nullPID:
		return Packet{}
	case pid == s.mapPID:
		if table := s.pmt.add(payload, begins, tablePMT); table != nil {
			s.readPMT(table)
		}
		return Packet{Kind: Table}
	case pid == s.picture.PID:
		out := Packet{Kind: Picture, Begins: begins, Key: begins && random}
		out.Time, out.Timed = timeOf(payload, begins)
		return out
	case pid == s.sound.PID:
		out := Packet{Kind: Sound, Begins: begins, Key: begins}
		out.Time, out.Timed = timeOf(payload, begins)
		return out
	}
	return Packet{}
}

// payloadOf returns a packet's payload. random reports whether the packet's adaptation field says that
// a decoder can begin with the packet (random_access_indicator).
func payloadOf(p []byte) (payload []byte, random bool) {
	control := p[3] >> 4 & 3
	payload = p[4:]
	if control&2 != 0 {
		n := int(payload[0])
		if n >= len(payload) {
			return nil, false
		}
		random = n > 0 && payload[1]&0x40 != 0
		payload = payload[1+n:]
	}
	if control&1 == 0 {
		return nil, random
	}
	return payload, random
}

// section collects the packets of one table.
type section struct{ b []byte }

// add adds a packet's payload. When the section is complete, it returns the bytes between the
// section's header and its checksum, and otherwise nil. It drops a section of another table.
func (s *section) add(payload []byte, begins bool, table byte) []byte {
	if begins {
		if len(payload) == 0 || 1+int(payload[0]) > len(payload) {
			s.b = s.b[:0]
			return nil
		}
		s.b = append(s.b[:0], payload[1+int(payload[0]):]...)
	} else if len(s.b) > 0 {
		s.b = append(s.b, payload...)
	}
	if len(s.b) < 3 {
		return nil
	}
	n := 3 + int(s.b[1]&0x0f)<<8 + int(s.b[2])
	switch {
	case s.b[0] != table || n > maxTable || n < 12:
		s.b = s.b[:0]
		return nil
	case len(s.b) < n:
		return nil
	}
	out := s.b[8 : n-4]
	s.b = s.b[:0]
	return out
}

// readPAT reads the program association table.
func (s *Scanner) readPAT(b []byte) {
	for ; len(b) >= 4; b = b[4:] {
		if program := int(b[0])<<8 | int(b[1]); program == 0 { // the network's own table
			continue
		}
		if pid := uint16(b[2]&0x1f)<<8 | uint16(b[3]); pid != s.mapPID {
			s.mapPID, s.picture, s.sound, s.pmt = pid, Stream{}, Stream{}, section{}
		}
		return
	}
}

// readPMT reads the program map table.
func (s *Scanner) readPMT(b []byte) {
	if len(b) < 4 {
		return
	}
	info := int(b[2]&0x0f)<<8 | int(b[3])
	if b = b[4:]; info > len(b) {
		return
	}
	var picture, sound Stream
	for b = b[info:]; len(b) >= 5; {
		stream := Stream{Type: b[0], PID: uint16(b[1]&0x1f)<<8 | uint16(b[2])}
		n := int(b[3]&0x0f)<<8 | int(b[4])
		if b = b[5:]; n > len(b) {
			return
		}
		switch kindOf(stream.Type, b[:n]) {
		case Picture:
			if picture.PID == 0 {
				picture = stream
			}
		case Sound:
			if sound.PID == 0 {
				sound = stream
			}
		}
		b = b[n:]
	}
	s.picture, s.sound = picture, sound
}

// Stream types (ISO/IEC 13818-1, table 2-34; ATSC A/53).
var (
	pictureTypes = []byte{0x01, 0x02, 0x10, 0x1b, 0x20, 0x21, 0x24, 0x33, 0x42, 0xd1, 0xea}
	soundTypes   = []byte{0x03, 0x04, 0x0f, 0x11, 0x1c, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87}
)

// kindOf returns the kind of an elementary stream. The kind of private data is in its
// descriptors (ETSI EN 300 468, and the registrations of SMPTE).
func kindOf(stream byte, descriptors []byte) Kind {
	switch {
	case slices.Contains(pictureTypes, stream):
		return Picture
	case slices.Contains(soundTypes, stream):
		return Sound
	case stream != 0x06:
		return Other
	}
	for len(descriptors) >= 2 {
		tag, n := descriptors[0], int(descriptors[1])
		if n > len(descriptors)-2 {
			break
		}
		body := descriptors[2 : 2+n]
		switch tag {
		case 0x6a, 0x7a, 0x7b, 0x7c: // AC-3, enhanced AC-3, DTS, AAC
			return Sound
		case 0x05:
			switch string(body[:min(4, n)]) {
			case "Opus", "AC-3", "EAC3", "BSSD", "DTS1", "DTS2", "DTS3":
				return Sound
			case "HEVC", "VVC ", "AV01", "drac", "VC-1":
				return Picture
			}
		}
		descriptors = descriptors[2+n:]
	}
	return Other
}

// timeOf returns the decoding time of a PES packet that starts in a payload.
func timeOf(payload []byte, begins bool) (int64, bool) {
	if !begins {
		return 0, false
	}
	last := int64(0)
	found := false
	for _, field := range stampsOf(payload) {
		last, found = readStamp(field), true // the decoding time is the last one
	}
	return last, found
}

// stampsOf returns the fields of a PES packet's timestamps: none, the presentation time, or the
// presentation time and the decoding time.
func stampsOf(pes []byte) [][]byte {
	if len(pes) < 14 || pes[0] != 0 || pes[1] != 0 || pes[2] != 1 || pes[6]>>6 != 2 {
		return nil
	}
	switch flags := pes[7] >> 6; {
	case flags == 2 && pes[8] >= 5:
		return [][]byte{pes[9:14]}
	case flags == 3 && pes[8] >= 10 && len(pes) >= 19:
		return [][]byte{pes[9:14], pes[14:19]}
	}
	return nil
}

func readStamp(b []byte) int64 {
	return int64(b[0]>>1&7)<<30 | int64(b[1])<<22 | int64(b[2]>>1)<<15 | int64(b[3])<<7 | int64(b[4]>>1)
}

// Shift adds a number of units of 1/90000 s to the timestamps of a packet for which Packet.Begins is
// true.
func Shift(p []byte, by int64) {
	payload, _ := payloadOf(p)
	for _, b := range stampsOf(payload) {
		stamp := (readStamp(b) + by) & stampMask
		b[0] = b[0]&0xf1 | byte(stamp>>29)&0x0e
		b[1] = byte(stamp >> 22)
		b[2] = byte(stamp>>14)&0xfe | 1
		b[3] = byte(stamp >> 7)
		b[4] = byte(stamp<<1)&0xfe | 1
	}
}
