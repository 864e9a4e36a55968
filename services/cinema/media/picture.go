package media

import "github.com/pion/rtp/codecs"

// FirstPicture returns the first picture of a group of pictures, as H.264's byte stream (Annex
// B): parameter sets and key frame. It returns nil if the packets do not start with a picture, or if
// the picture's last packet is not among them yet. The last packet has the marker (RFC 6184, section
// 5.1), or is followed by a packet of another picture. For invalid packets the result may be invalid,
// but it is at most twice as long as the packets.
func FirstPicture(group [][]byte) (stream []byte) {
	var h264 codecs.H264Packet
	first := true
	var stamp uint32
	for _, raw := range group {
		p, err := Parse(raw)
		if err != nil || !p.Video() {
			continue
		}
		if first {
			first, stamp = false, p.Timestamp
		}
		if p.Timestamp != stamp {
			return stream
		}
		units, err := h264.Unmarshal(p.Payload)
		if err != nil {
			return stream
		}
		stream = append(stream, units...)
		if p.Marker {
			return stream
		}
	}
	return nil
}
