package content

import (
	"errors"
	"fmt"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// Part is added to the number of a part of the manifest to distinguish it from the number of a
// piece. Each part has PieceSize bytes, except for the last.
const Part = 1 << 31

// ErrMessage means that bytes are not a request or response; errors wrap it.
var ErrMessage = errors.New("not a message about content")

// request is a request for a piece.
type request struct {
	// Number is a random number of the requester, which the response repeats.
	Number  uint64
	Content frame.GUID
	Piece   uint32 // or Part plus the number of a part of the manifest
}

const requestSize = 8 + len(frame.GUID{}) + 4

func (r *request) appendTo(b []byte) []byte {
	return be.AppendUint32(append(be.AppendUint64(b, r.Number), r.Content[:]...), r.Piece)
}

// parseRequest parses the payload of a chunk.
func parseRequest(b []byte) (r request, err error) {
	if len(b) != requestSize {
		return r, fmt.Errorf("request of %d bytes, want %d: %w", len(b), requestSize, ErrMessage)
	}
	r.Number = be.Uint64(b)
	r.Piece = be.Uint32(b[8+copy(r.Content[:], b[8:]):])
	return r, nil
}

// verdict is the result of a request.
type verdict uint8

const (
	verdictGiven  verdict = iota // the piece follows
	verdictAbsent                // the host does not have the piece and cannot fetch it
	verdictRetry                 // the host serves requesters that take its answers; this was the first, so the requester has to ask again
	verdicts
)

// response answers a request.
type response struct {
	Number  uint64
	Verdict verdict
	Data    []byte // the piece
}

const responseHead = 8 + 1

func (r *response) appendTo(b []byte) []byte {
	return append(append(be.AppendUint64(b, r.Number), byte(r.Verdict)), r.Data...)
}

// parseResponse parses the payload of a chunk and shares its memory.
func parseResponse(b []byte) (r response, err error) {
	if len(b) < responseHead || b[8] >= byte(verdicts) || b[8] != byte(verdictGiven) && len(b) > responseHead {
		return r, fmt.Errorf("response of %d bytes: %w", len(b), ErrMessage)
	}
	return response{be.Uint64(b), verdict(b[8]), b[responseHead:]}, nil
}
