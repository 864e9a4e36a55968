package ingress

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/sluice-net/sluice/internal/listen"
	"github.com/sluice-net/sluice/services/cinema/rtmp"
)

// openRTMP starts to wait for producers by RTMP.
func openRTMP(r *receiver) error {
	l, err := net.Listen("tcp", r.place.at.String())
	if err != nil {
		return err
	}
	limited := limitedListener{
		Listener: listen.New(l, func(err error) { r.ch.logLimiter.Warn(r.ch.log, "cannot accept producers for now", "error", err) }),
		limiter:  &connLimiter{most: maxClients, mostPerSource: maxSourceClients},
	}
	context.AfterFunc(r.tasks.Context(), func() { _ = limited.Close() })
	r.tasks.Start(func(ctx context.Context) {
		for {
			conn, err := limited.Accept()
			if err != nil {
				return // the listener was closed
			}
			if !r.tasks.Start(func(ctx context.Context) { r.acceptRTMP(ctx, conn) }) {
				_ = conn.Close()
			}
		}
	})
	return nil
}

// acceptRTMP makes a client the producer if the client asks to publish in time and with the right key.
// Otherwise it refuses the client.
func (r *receiver) acceptRTMP(ctx context.Context, conn net.Conn) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	// One deadline applies to all stages of the handshake, including the time in which the client
	// reads the answers.
	_ = conn.SetDeadline(time.Now().Add(handshakeTimeout))
	from := conn.RemoteAddr().(*net.TCPAddr).AddrPort()
	c, err := rtmp.Accept(conn)
	if err == nil {
		if err = r.checkKey(from.Addr(), rtmpPath(c)); err == nil {
			err = r.vacant(time.Now())
		}
		if err != nil {
			_ = c.Refuse(err.Error()) // the client may have gone
		}
	}
	if err == nil {
		err = c.Permit()
	}
	if err == nil {
		err = r.publish(newProducer(from.String(), &rtmpStream{conn: conn, rtmp: c, times: timeline{second: 1000, bits: 32}}, time.Now()))
	}
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("it has not asked to publish within %v", handshakeTimeout)
		}
		if ctx.Err() == nil {
			r.refuse(from.Addr(), err)
		}
		_ = conn.Close()
	}
}

// rtmpPath returns the application and the key of a connection as the path of an RTMP address has them.
func rtmpPath(c *rtmp.Conn) string {
	if c.App == "" || c.Key == "" {
		return c.App + c.Key
	}
	return c.App + "/" + c.Key
}

// rtmpStream is a stream by RTMP, which ffmpeg reads as FLV.
type rtmpStream struct {
	conn net.Conn
	rtmp *rtmp.Conn
	// configs holds the last message that configures each medium's decoder, as an FLV tag.
	configs [numMedia][]byte
	times   timeline
	tag     []byte
	one     [1]unit
}

// Constants of FLV, version 10 (annex E of the specification).
const (
	flvTagHeader  = 11
	codecAVC      = 7
	codecHEVC     = 12
	codecAAC      = 10
	codecExtended = 9 // of sound: the codec's name follows
)

// Close closes the connection.
func (s *rtmpStream) Close() error { return s.conn.Close() }

func (s *rtmpStream) read(deadline time.Time) ([]unit, error) {
	_ = s.conn.SetDeadline(deadline)
	for {
		m, err := s.rtmp.Read()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
			return nil, errEnded
		case err != nil:
			return nil, err
		}
		if len(m.Body) == 0 {
			continue
		}
		u := unit{medium: sound, key: true, begins: true}
		config := m.Body[0]>>4 == codecAAC && len(m.Body) > 1 && m.Body[1] == 0
		if m.Type == rtmp.TypeVideo {
			u.medium, u.key = picture, m.Body[0]>>4 == 1
			config = m.Body[0]&15 == codecAVC && len(m.Body) > 1 && m.Body[1] == 0
		}
		if name := foreignCodec(m); name != "" {
			return nil, fmt.Errorf("it sends %s by RTMP: want H.264 and AAC", name)
		}
		if config {
			s.configs[u.medium] = appendTag(nil, m)
			u.setup, u.key, u.begins = true, false, false
		} else {
			m.Timestamp += uint32(s.times.shift(u.medium, int64(m.Timestamp)))
		}
		s.tag = appendTag(s.tag[:0], m)
		u.data = s.tag
		s.one[0] = u
		return s.one[:], nil
	}
}

// foreignCodec returns the name of a message's codec if ffmpeg cannot read the codec in FLV, and ""
// otherwise. ffmpeg cannot read HEVC as some encoders send it, and the codecs of enhanced RTMP.
func foreignCodec(m rtmp.Message) string {
	first := m.Body[0]
	extended := m.Type == rtmp.TypeVideo && first&0x80 != 0 || m.Type == rtmp.TypeAudio && first>>4 == codecExtended
	switch {
	case extended && len(m.Body) >= 5:
		return codecName(string(m.Body[1:5]))
	case m.Type == rtmp.TypeVideo && first&15 == codecHEVC:
		return "HEVC"
	}
	return ""
}

// codecName returns the usual name of the codec that has the given FourCC.
func codecName(code string) string {
	names := map[string]string{
		"hvc1": "HEVC", "vvc1": "VVC", "av01": "AV1", "vp08": "VP8", "vp09": "VP9", "avc1": "H.264 by enhanced RTMP",
		"Opus": "Opus", "fLaC": "FLAC", "ac-3": "AC-3", "ec-3": "E-AC-3", "mp4a": "AAC by enhanced RTMP", ".mp3": "MP3 by enhanced RTMP",
	}
	if name := names[code]; name != "" {
		return name
	}
	return fmt.Sprintf("codec %q", code)
}

// appendTag appends a message as a tag of FLV.
func appendTag(b []byte, m rtmp.Message) []byte {
	n := len(m.Body)
	b = append(b, m.Type, byte(n>>16), byte(n>>8), byte(n), byte(m.Timestamp>>16), byte(m.Timestamp>>8), byte(m.Timestamp), byte(m.Timestamp>>24), 0, 0, 0)
	b = append(b, m.Body...)
	return binary.BigEndian.AppendUint32(b, uint32(n+flvTagHeader))
}

func (s *rtmpStream) header(has mediaSet) []byte {
	flags := byte(0)
	if has[picture] {
		flags |= 1
	}
	if has[sound] {
		flags |= 4
	}
	out := []byte{'F', 'L', 'V', 1, flags, 0, 0, 0, 9, 0, 0, 0, 0}
	for m, config := range s.configs {
		if has[m] {
			out = append(out, config...)
		}
	}
	return out
}

func (s *rtmpStream) input() (format, pictureMap, soundMap string) { return "flv", "", "" }
