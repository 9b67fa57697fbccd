from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Dtype(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DTYPE_UNKNOWN: _ClassVar[Dtype]
    FLOAT32: _ClassVar[Dtype]
    FLOAT64: _ClassVar[Dtype]
    INT64: _ClassVar[Dtype]

class Codec(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CODEC_UNKNOWN: _ClassVar[Codec]
    PLAIN: _ClassVar[Codec]
    FP16: _ClassVar[Codec]
    BF16: _ClassVar[Codec]
    INT8: _ClassVar[Codec]

class Compression(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNCOMPRESSED: _ClassVar[Compression]
    ZSTD: _ClassVar[Compression]

class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REASON_UNKNOWN: _ClassVar[Reason]
    VERSION: _ClassVar[Reason]
    NOT_LISTED: _ClassVar[Reason]
    IDENTITY: _ClassVar[Reason]
    TWICE: _ClassVar[Reason]
    OTHER_RUN: _ClassVar[Reason]
    MALFORMED: _ClassVar[Reason]
    TOO_MUCH: _ClassVar[Reason]
    NOT_FINITE: _ClassVar[Reason]
    LATE: _ClassVar[Reason]
    STOPPED: _ClassVar[Reason]
    OTHER_DATA: _ClassVar[Reason]
    TOO_OFTEN: _ClassVar[Reason]
    EXPIRED: _ClassVar[Reason]
DTYPE_UNKNOWN: Dtype
FLOAT32: Dtype
FLOAT64: Dtype
INT64: Dtype
CODEC_UNKNOWN: Codec
PLAIN: Codec
FP16: Codec
BF16: Codec
INT8: Codec
UNCOMPRESSED: Compression
ZSTD: Compression
REASON_UNKNOWN: Reason
VERSION: Reason
NOT_LISTED: Reason
IDENTITY: Reason
TWICE: Reason
OTHER_RUN: Reason
MALFORMED: Reason
TOO_MUCH: Reason
NOT_FINITE: Reason
LATE: Reason
STOPPED: Reason
OTHER_DATA: Reason
TOO_OFTEN: Reason
EXPIRED: Reason

class Tensor(_message.Message):
    __slots__ = ("dtype", "shape", "codec", "compression", "bytes")
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    CODEC_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    dtype: Dtype
    shape: _containers.RepeatedScalarFieldContainer[int]
    codec: Codec
    compression: Compression
    bytes: int
    def __init__(self, dtype: _Optional[_Union[Dtype, str]] = ..., shape: _Optional[_Iterable[int]] = ..., codec: _Optional[_Union[Codec, str]] = ..., compression: _Optional[_Union[Compression, str]] = ..., bytes: _Optional[int] = ...) -> None: ...

class Part(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class FromDevice(_message.Message):
    __slots__ = ("hello", "ready", "upload", "scored", "done", "status", "failed", "judged", "heard", "part")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_FIELD_NUMBER: _ClassVar[int]
    SCORED_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    JUDGED_FIELD_NUMBER: _ClassVar[int]
    HEARD_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    ready: Ready
    upload: Upload
    scored: Scored
    done: Done
    status: Status
    failed: Failed
    judged: Judged
    heard: Heard
    part: Part
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., ready: _Optional[_Union[Ready, _Mapping]] = ..., upload: _Optional[_Union[Upload, _Mapping]] = ..., scored: _Optional[_Union[Scored, _Mapping]] = ..., done: _Optional[_Union[Done, _Mapping]] = ..., status: _Optional[_Union[Status, _Mapping]] = ..., failed: _Optional[_Union[Failed, _Mapping]] = ..., judged: _Optional[_Union[Judged, _Mapping]] = ..., heard: _Optional[_Union[Heard, _Mapping]] = ..., part: _Optional[_Union[Part, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol", "version", "name")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    version: str
    name: str
    def __init__(self, protocol: _Optional[int] = ..., version: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class Ready(_message.Message):
    __slots__ = ("samples", "label_counts", "batches_per_pass", "stored", "generation", "round", "turn", "waiting", "test_samples", "fresh")
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    LABEL_COUNTS_FIELD_NUMBER: _ClassVar[int]
    BATCHES_PER_PASS_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    TEST_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    FRESH_FIELD_NUMBER: _ClassVar[int]
    samples: int
    label_counts: _containers.RepeatedScalarFieldContainer[int]
    batches_per_pass: int
    stored: _containers.RepeatedCompositeFieldContainer[Stored]
    generation: int
    round: int
    turn: int
    waiting: bool
    test_samples: int
    fresh: bool
    def __init__(self, samples: _Optional[int] = ..., label_counts: _Optional[_Iterable[int]] = ..., batches_per_pass: _Optional[int] = ..., stored: _Optional[_Iterable[_Union[Stored, _Mapping]]] = ..., generation: _Optional[int] = ..., round: _Optional[int] = ..., turn: _Optional[int] = ..., waiting: _Optional[bool] = ..., test_samples: _Optional[int] = ..., fresh: _Optional[bool] = ...) -> None: ...

class Stored(_message.Message):
    __slots__ = ("round", "generation")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    round: int
    generation: int
    def __init__(self, round: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...

class Upload(_message.Message):
    __slots__ = ("round", "turn", "activations", "labels", "forward_seconds", "backward_seconds")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    ACTIVATIONS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    FORWARD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    BACKWARD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    round: int
    turn: int
    activations: Tensor
    labels: _containers.RepeatedScalarFieldContainer[int]
    forward_seconds: float
    backward_seconds: float
    def __init__(self, round: _Optional[int] = ..., turn: _Optional[int] = ..., activations: _Optional[_Union[Tensor, _Mapping]] = ..., labels: _Optional[_Iterable[int]] = ..., forward_seconds: _Optional[float] = ..., backward_seconds: _Optional[float] = ...) -> None: ...

class Scored(_message.Message):
    __slots__ = ("batch", "activations", "labels")
    BATCH_FIELD_NUMBER: _ClassVar[int]
    ACTIVATIONS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    batch: int
    activations: Tensor
    labels: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, batch: _Optional[int] = ..., activations: _Optional[_Union[Tensor, _Mapping]] = ..., labels: _Optional[_Iterable[int]] = ...) -> None: ...

class Done(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Status(_message.Message):
    __slots__ = ("drift", "sha256")
    DRIFT_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    drift: float
    sha256: str
    def __init__(self, drift: _Optional[float] = ..., sha256: _Optional[str] = ...) -> None: ...

class Judged(_message.Message):
    __slots__ = ("loss", "tensor", "right")
    LOSS_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    RIGHT_FIELD_NUMBER: _ClassVar[int]
    loss: float
    tensor: Tensor
    right: int
    def __init__(self, loss: _Optional[float] = ..., tensor: _Optional[_Union[Tensor, _Mapping]] = ..., right: _Optional[int] = ...) -> None: ...

class Failed(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Heard(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ToDevice(_message.Message):
    __slots__ = ("welcome", "refusal", "begin", "forward", "backward", "save", "share", "evaluate", "ask", "goodbye", "head", "part")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    FORWARD_FIELD_NUMBER: _ClassVar[int]
    BACKWARD_FIELD_NUMBER: _ClassVar[int]
    SAVE_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    EVALUATE_FIELD_NUMBER: _ClassVar[int]
    ASK_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    refusal: Refusal
    begin: Begin
    forward: Forward
    backward: Backward
    save: Save
    share: Share
    evaluate: Evaluate
    ask: Ask
    goodbye: Goodbye
    head: Head
    part: Part
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., begin: _Optional[_Union[Begin, _Mapping]] = ..., forward: _Optional[_Union[Forward, _Mapping]] = ..., backward: _Optional[_Union[Backward, _Mapping]] = ..., save: _Optional[_Union[Save, _Mapping]] = ..., share: _Optional[_Union[Share, _Mapping]] = ..., evaluate: _Optional[_Union[Evaluate, _Mapping]] = ..., ask: _Optional[_Union[Ask, _Mapping]] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ..., head: _Optional[_Union[Head, _Mapping]] = ..., part: _Optional[_Union[Part, _Mapping]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("protocol", "run", "device", "devices", "config", "classes", "inputs", "mean", "std", "features", "own_data", "activations", "gradients", "compression", "parameter_server")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    MEAN_FIELD_NUMBER: _ClassVar[int]
    STD_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    OWN_DATA_FIELD_NUMBER: _ClassVar[int]
    ACTIVATIONS_FIELD_NUMBER: _ClassVar[int]
    GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_SERVER_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    run: str
    device: int
    devices: int
    config: str
    classes: _containers.RepeatedScalarFieldContainer[str]
    inputs: _containers.RepeatedScalarFieldContainer[int]
    mean: _containers.RepeatedScalarFieldContainer[float]
    std: _containers.RepeatedScalarFieldContainer[float]
    features: _containers.RepeatedScalarFieldContainer[int]
    own_data: bool
    activations: Codec
    gradients: Codec
    compression: Compression
    parameter_server: str
    def __init__(self, protocol: _Optional[int] = ..., run: _Optional[str] = ..., device: _Optional[int] = ..., devices: _Optional[int] = ..., config: _Optional[str] = ..., classes: _Optional[_Iterable[str]] = ..., inputs: _Optional[_Iterable[int]] = ..., mean: _Optional[_Iterable[float]] = ..., std: _Optional[_Iterable[float]] = ..., features: _Optional[_Iterable[int]] = ..., own_data: _Optional[bool] = ..., activations: _Optional[_Union[Codec, str]] = ..., gradients: _Optional[_Union[Codec, str]] = ..., compression: _Optional[_Union[Compression, str]] = ..., parameter_server: _Optional[str] = ...) -> None: ...

class Begin(_message.Message):
    __slots__ = ("round", "total_rounds", "generation")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    TOTAL_ROUNDS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    round: int
    total_rounds: int
    generation: int
    def __init__(self, round: _Optional[int] = ..., total_rounds: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("reason", "message")
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    reason: Reason
    message: str
    def __init__(self, reason: _Optional[_Union[Reason, str]] = ..., message: _Optional[str] = ...) -> None: ...

class Forward(_message.Message):
    __slots__ = ("round", "turn", "learn", "proposes")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    LEARN_FIELD_NUMBER: _ClassVar[int]
    PROPOSES_FIELD_NUMBER: _ClassVar[int]
    round: int
    turn: int
    learn: bool
    proposes: bool
    def __init__(self, round: _Optional[int] = ..., turn: _Optional[int] = ..., learn: _Optional[bool] = ..., proposes: _Optional[bool] = ...) -> None: ...

class Backward(_message.Message):
    __slots__ = ("round", "turn", "step", "gradient", "late")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    GRADIENT_FIELD_NUMBER: _ClassVar[int]
    LATE_FIELD_NUMBER: _ClassVar[int]
    round: int
    turn: int
    step: bool
    gradient: Tensor
    late: bool
    def __init__(self, round: _Optional[int] = ..., turn: _Optional[int] = ..., step: _Optional[bool] = ..., gradient: _Optional[_Union[Tensor, _Mapping]] = ..., late: _Optional[bool] = ...) -> None: ...

class Save(_message.Message):
    __slots__ = ("round",)
    ROUND_FIELD_NUMBER: _ClassVar[int]
    round: int
    def __init__(self, round: _Optional[int] = ...) -> None: ...

class Share(_message.Message):
    __slots__ = ("transfer", "weights", "fetch", "keep")
    class WeightsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: float
        def __init__(self, key: _Optional[int] = ..., value: _Optional[float] = ...) -> None: ...
    TRANSFER_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    FETCH_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    transfer: str
    weights: _containers.ScalarMap[int, float]
    fetch: bool
    keep: bool
    def __init__(self, transfer: _Optional[str] = ..., weights: _Optional[_Mapping[int, float]] = ..., fetch: _Optional[bool] = ..., keep: _Optional[bool] = ...) -> None: ...

class Evaluate(_message.Message):
    __slots__ = ("set", "batch", "shared", "inputs")
    class Set(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        TEST: _ClassVar[Evaluate.Set]
        VALIDATION: _ClassVar[Evaluate.Set]
        OWN: _ClassVar[Evaluate.Set]
    TEST: Evaluate.Set
    VALIDATION: Evaluate.Set
    OWN: Evaluate.Set
    SET_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    set: Evaluate.Set
    batch: int
    shared: bool
    inputs: Tensor
    def __init__(self, set: _Optional[_Union[Evaluate.Set, str]] = ..., batch: _Optional[int] = ..., shared: _Optional[bool] = ..., inputs: _Optional[_Union[Tensor, _Mapping]] = ...) -> None: ...

class Head(_message.Message):
    __slots__ = ("what", "batch", "features")
    class What(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        LOSS: _ClassVar[Head.What]
        LOGITS: _ClassVar[Head.What]
        COUNT: _ClassVar[Head.What]
    LOSS: Head.What
    LOGITS: Head.What
    COUNT: Head.What
    WHAT_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    what: Head.What
    batch: int
    features: Tensor
    def __init__(self, what: _Optional[_Union[Head.What, str]] = ..., batch: _Optional[int] = ..., features: _Optional[_Union[Tensor, _Mapping]] = ...) -> None: ...

class Ask(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ("reason", "finished")
    REASON_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    reason: str
    finished: bool
    def __init__(self, reason: _Optional[str] = ..., finished: _Optional[bool] = ...) -> None: ...

class FromParameterClient(_message.Message):
    __slots__ = ("announce", "named", "part")
    ANNOUNCE_FIELD_NUMBER: _ClassVar[int]
    NAMED_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    announce: Announce
    named: Named
    part: Part
    def __init__(self, announce: _Optional[_Union[Announce, _Mapping]] = ..., named: _Optional[_Union[Named, _Mapping]] = ..., part: _Optional[_Union[Part, _Mapping]] = ...) -> None: ...

class Announce(_message.Message):
    __slots__ = ("protocol", "name", "device", "run", "transfer", "weights", "tensors", "fetch")
    class WeightsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: float
        def __init__(self, key: _Optional[int] = ..., value: _Optional[float] = ...) -> None: ...
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    FETCH_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    name: str
    device: int
    run: str
    transfer: str
    weights: _containers.ScalarMap[int, float]
    tensors: int
    fetch: bool
    def __init__(self, protocol: _Optional[int] = ..., name: _Optional[str] = ..., device: _Optional[int] = ..., run: _Optional[str] = ..., transfer: _Optional[str] = ..., weights: _Optional[_Mapping[int, float]] = ..., tensors: _Optional[int] = ..., fetch: _Optional[bool] = ...) -> None: ...

class Named(_message.Message):
    __slots__ = ("name", "tensor")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    name: str
    tensor: Tensor
    def __init__(self, name: _Optional[str] = ..., tensor: _Optional[_Union[Tensor, _Mapping]] = ...) -> None: ...

class ToParameterClient(_message.Message):
    __slots__ = ("refusal", "named", "finished", "part")
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    NAMED_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    refusal: Refusal
    named: Named
    finished: Finished
    part: Part
    def __init__(self, refusal: _Optional[_Union[Refusal, _Mapping]] = ..., named: _Optional[_Union[Named, _Mapping]] = ..., finished: _Optional[_Union[Finished, _Mapping]] = ..., part: _Optional[_Union[Part, _Mapping]] = ...) -> None: ...

class Finished(_message.Message):
    __slots__ = ("tensors",)
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    tensors: int
    def __init__(self, tensors: _Optional[int] = ...) -> None: ...

class FromPredictor(_message.Message):
    __slots__ = ("question", "part")
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    question: Question
    part: Part
    def __init__(self, question: _Optional[_Union[Question, _Mapping]] = ..., part: _Optional[_Union[Part, _Mapping]] = ...) -> None: ...

class Question(_message.Message):
    __slots__ = ("protocol", "version", "name", "model", "run", "activations")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    ACTIVATIONS_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    version: str
    name: str
    model: str
    run: str
    activations: Tensor
    def __init__(self, protocol: _Optional[int] = ..., version: _Optional[str] = ..., name: _Optional[str] = ..., model: _Optional[str] = ..., run: _Optional[str] = ..., activations: _Optional[_Union[Tensor, _Mapping]] = ...) -> None: ...

class ToPredictor(_message.Message):
    __slots__ = ("refusal", "answer", "part")
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    refusal: Refusal
    answer: Answer
    part: Part
    def __init__(self, refusal: _Optional[_Union[Refusal, _Mapping]] = ..., answer: _Optional[_Union[Answer, _Mapping]] = ..., part: _Optional[_Union[Part, _Mapping]] = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ("outputs",)
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    outputs: Tensor
    def __init__(self, outputs: _Optional[_Union[Tensor, _Mapping]] = ...) -> None: ...
