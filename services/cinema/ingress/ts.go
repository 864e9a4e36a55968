package ingress

import (
	"bytes"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/services/cinema/mpegts"
)

// maxTablePackets bounds the packets of each of a transport stream's tables that are kept.
const maxTablePackets = 8

// tsStream is an MPEG transport stream.
type tsStream struct {
	// next returns the next bytes of the stream, which are valid until the next call.
	next  func(deadline time.Time) ([]byte, error)
	close func()

	scanner mpegts.Scanner
	times   timeline
	rest    []byte // bytes of a packet that has not arrived completely
	tables  [2][]byte
	units   []unit
	buf     []byte
}

// newTSStream returns the transport stream whose bytes next returns.
func newTSStream(next func(deadline time.Time) ([]byte, error), end func()) *tsStream {
	return &tsStream{next: next, close: end, times: timeline{second: 90000, bits: 33}}
}

// Close ends the stream.
func (s *tsStream) Close() error {
	s.close()
	return nil
}

// read implements stream. It returns the packets of picture, sound and tables, and leaves out all
// others.
func (s *tsStream) read(deadline time.Time) ([]unit, error) {
	b, err := s.next(deadline)
	if err != nil {
		return nil, err
	}
	s.buf = append(append(s.buf[:0], s.rest...), b...)
	s.units = s.units[:0]
	rest := s.buf
	for {
		rest = synchronize(rest)
		if len(rest) < mpegts.PacketSize {
			break
		}
		packet := rest[:mpegts.PacketSize]
		rest = rest[mpegts.PacketSize:]
		x := s.scanner.Scan(packet)
		if x.Timed {
			m := picture
			if x.Kind == mpegts.Sound {
				m = sound
			}
			mpegts.Shift(packet, s.times.shift(m, x.Time))
		}
		switch x.Kind {
		case mpegts.Table:
			s.keepTable(packet)
			s.units = append(s.units, unit{medium: noMedium, data: packet})
		case mpegts.Picture:
			s.units = append(s.units, unit{medium: picture, key: x.Key, begins: x.Timed, data: packet})
		case mpegts.Sound:
			s.units = append(s.units, unit{medium: sound, key: x.Key, begins: x.Timed, data: packet})
		}
	}
	s.rest = append(s.rest[:0], rest...)
	return s.units, nil
}

// synchronize returns the bytes from the first packet's sync byte on, or nil if there is none. If bytes
// follow that packet, they must begin with a sync byte as well.
func synchronize(b []byte) []byte {
	const sync = 0x47
	for {
		i := bytes.IndexByte(b, sync)
		if i < 0 {
			return nil
		}
		b = b[i:]
		if len(b) <= mpegts.PacketSize || b[mpegts.PacketSize] == sync {
			return b
		}
		b = b[1:]
	}
}

// keepTable keeps a packet of a table: of the program association table (s.tables[0]), or of the first
// program's map table (s.tables[1]).
func (s *tsStream) keepTable(packet []byte) {
	i := 1
	if packet[1]&0x1f == 0 && packet[2] == 0 {
		i = 0
	}
	if begins := packet[1]&0x40 != 0; begins {
		s.tables[i] = s.tables[i][:0]
	}
	if len(s.tables[i]) < maxTablePackets*mpegts.PacketSize {
		s.tables[i] = append(s.tables[i], packet...)
	}
}

func (s *tsStream) header(mediaSet) []byte { return bytes.Join(s.tables[:], nil) }

// input implements stream. It names the streams by their packet identifiers, because ffmpeg also counts
// streams that send nothing.
func (s *tsStream) input() (format, pictureMap, soundMap string) {
	return "mpegts", fmt.Sprintf("0:i:%d", s.scanner.Picture().PID), fmt.Sprintf("0:i:%d", s.scanner.Sound().PID)
}
