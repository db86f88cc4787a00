package gate

// MessageTime is messageTime.
var MessageTime = messageTime
