package testbed

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/packetsocket"
	"github.com/sluice-net/sluice/services/cinema/media"
)

// PictureID identifies a picture of a channel between the gateways.
type PictureID struct {
	SSRC, Timestamp uint32
}

// PicturePackets records when pictures pass an interface. It is safe for concurrent use.
type PicturePackets struct {
	socket  *packetsocket.Socket
	running sync.WaitGroup

	mu     sync.Mutex
	passed map[PictureID]time.Time
}

// WatchPicturePackets starts to record at an interface of a host, in both directions.
func WatchPicturePackets(host Inside, name string) (*PicturePackets, error) {
	p := &PicturePackets{passed: map[PictureID]time.Time{}}
	err := host.Do(func() error {
		link, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		p.socket, err = packetsocket.Open(link, packetsocket.Options{Buffer: framesBuffer, Batch: framesBatch, MaxFrame: maxFrame, Timestamps: true, Outgoing: true})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("watch pictures at %s: %w", name, err)
	}
	p.running.Go(p.receive)
	return p, nil
}

func (p *PicturePackets) receive() {
	for {
		all, err := p.socket.ReceiveBatch(context.Background())
		if err != nil {
			return // it was closed
		}
		for _, one := range all {
			p.note(one.Data, one.Time)
		}
	}
}

// note records the last packet of a picture, at the first time that it passes.
func (p *PicturePackets) note(frame []byte, at time.Time) {
	const ethernet, udp = 14, 8
	if len(frame) < ethernet+20+udp || binary.BigEndian.Uint16(frame[12:]) != 0x0800 || frame[ethernet+9] != 17 {
		return
	}
	ip := 4 * int(frame[ethernet]&15)
	if len(frame) < ethernet+ip+udp {
		return
	}
	packet, err := media.Parse(frame[ethernet+ip+udp:])
	if err != nil || !packet.Video() || !packet.Marker {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	id := PictureID{packet.SSRC, packet.Timestamp}
	if _, again := p.passed[id]; !again {
		p.passed[id] = at
	}
}

// Passed returns when the last packet of each picture has passed.
func (p *PicturePackets) Passed() map[PictureID]time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.passed)
}

// Close ends the recording.
func (p *PicturePackets) Close() {
	_ = p.socket.Close()
	p.running.Wait()
}
