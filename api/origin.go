package api

// Origins of objects that may be defined both in the configuration file and by the API. An
// object has one of them: objects from the file are changed only there, objects from the API
// only by the API.
const (
	OriginFile = "file"
	OriginAPI  = "api"
)

// Origin returns OriginFile for an object from the configuration file, otherwise OriginAPI.
func Origin(configured bool) string {
	if configured {
		return OriginFile
	}
	return OriginAPI
}

// Configured returns the error for a request to change or remove an object that the configuration file
// defines: 409. key is the object's key in the file, like handover.classes.cars.
func Configured(location string, value any, key string) error {
	return Conflict(location, value, "it stands in the configuration file, as "+key+": change it there, or take it out there, and restart the controller")
}
