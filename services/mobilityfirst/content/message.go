package content

import (
	"errors"
	"fmt"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// Part stands, where the number of a piece could stand, for the first part of the manifest, Part+1 for the second, and so on. Each
// has PieceSize bytes, but for the last.
const Part = 1 << 31

// ErrMessage is for bytes that are no request, or no response; errors wrap it.
var ErrMessage = errors.New("not a message about content")

// request asks for a piece.
type request struct {
	// Number is drawn by who asks, and repeated in the response.
	Number  uint64
	Content frame.GUID
	Piece   uint32 // or Part and more
}

const requestSize = 8 + len(frame.GUID{}) + 4

func (r *request) appendTo(b []byte) []byte {
	return be.AppendUint32(append(be.AppendUint64(b, r.Number), r.Content[:]...), r.Piece)
}

// parseRequest reads the payload of a chunk.
func parseRequest(b []byte) (r request, err error) {
	if len(b) != requestSize {
		return r, fmt.Errorf("request of %d bytes, want %d: %w", len(b), requestSize, ErrMessage)
	}
	r.Number = be.Uint64(b)
	r.Piece = be.Uint32(b[8+copy(r.Content[:], b[8:]):])
	return r, nil
}

// verdict is how a request was answered.
type verdict uint8

const (
	given  verdict = iota // the piece follows
	absent                // who was asked does not have it, and cannot get it
	again                 // who was asked gives pieces to those that take what they are given: this was the first
	verdicts
)

// response answers a request.
type response struct {
	Number  uint64
	Verdict verdict
	Data    []byte // of what was given
}

const responseHead = 8 + 1

func (r *response) appendTo(b []byte) []byte {
	return append(append(be.AppendUint64(b, r.Number), byte(r.Verdict)), r.Data...)
}

// parseResponse reads the payload of a chunk, whose memory it shares.
func parseResponse(b []byte) (r response, err error) {
	if len(b) < responseHead || b[8] >= byte(verdicts) || b[8] != byte(given) && len(b) > responseHead {
		return r, fmt.Errorf("response of %d bytes: %w", len(b), ErrMessage)
	}
	return response{be.Uint64(b), verdict(b[8]), b[responseHead:]}, nil
}
