"""Editing tasks: names, slots, the instructions the model was trained with, and how long the result is.

The templates are the canonical ones (AUK spec, section 5); whoever edits never writes an instruction by hand. Where
the spec states no Chinese wording, the English one is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from oscine.errors import InvalidRequest
from oscine.families.auk.duration import (
    EMOTION_FACTORS,
    MIN_SECONDS,
    OTHER_EMOTION_FACTOR,
    language_of,
    sound_delta,
    spoken_seconds,
)
from oscine.types import Slot

LANGUAGES = ("en", "zh")
ORDERS = ("first", "second", "third", "fourth", "fifth")
EMOTIONS = {
    "happy": "高兴",
    "angry": "愤怒",
    "sad": "悲伤",
    "fearful": "恐惧",
    "surprised": "惊讶",
    "disgusted": "厌恶",
    "calm": "平静",
    "excited": "兴奋",
}
"""Their names in Chinese are ours: the publishers state the template alone."""
DEFECTS = ("telephone effect", "muffling", "clipping", "dropouts")
Slots = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class EditTask:
    """One thing AuK can do to a clip. `seconds` gives the result's length from slots, source seconds and transcript."""

    name: str
    help: str
    english: str | Callable[[Slots], str]
    chinese: str | Callable[[Slots], str] | None = None
    slots: tuple[Slot, ...] = ()
    seconds: Callable[[Slots, float, str | None], float] = lambda _slots, source, _text: source

    @property
    def uses_transcript(self) -> bool:
        """Whether the length of the result is estimated from the words of the source."""
        return self.seconds in (_insert_seconds, _remove_seconds, _replace_seconds)

    def instruction(self, slots: Slots, language: str) -> str:
        """The instruction for checked slots in a language of `LANGUAGES`."""
        template = self.chinese if language == "zh" and self.chinese is not None else self.english
        if callable(template):
            return template(slots)
        return template.format(**{name: _quoted(value) for name, value in slots.items()})

    def checked(self, given: Slots) -> dict[str, str]:
        """All slots, defaults filled in. Raises InvalidRequest for one that is missing, unknown or not allowed."""
        known = {slot.name: slot for slot in self.slots}
        if unknown := sorted(set(given) - set(known)):
            allowed = ", ".join(known) or "none"
            raise InvalidRequest(f"task {self.name!r} has no {unknown[0]!r}; it has: {allowed}", param=unknown[0])
        return {name: _slot_value(self.name, slot, given.get(name)) for name, slot in known.items()}


def _slot_value(task: str, slot: Slot, value: str | None) -> str:
    value = slot.default if value is None else str(value).strip()
    if value is None or (not value and slot.default != ""):
        raise InvalidRequest(f"task {task!r} needs {slot.name} ({slot.help})", param=slot.name)
    if slot.choices is not None and value not in slot.choices:
        raise InvalidRequest(f"{slot.name} must be one of {', '.join(slot.choices)}, got {value!r}", param=slot.name)
    return value


def _quoted(text: str) -> str:
    """Text that stands inside quotes of a template without ending them."""
    return " ".join(text.split()).replace('"', "'")


def _place_english(slots: Slots) -> str:
    return f" {slots['where']} '{_quoted(slots['anchor'])}'" if slots["anchor"] else ""


def _insert_seconds(slots: Slots, source: float, text: str | None) -> float:
    return _rewritten(source, text, spoken_seconds(slots["text"]))


def _remove_seconds(slots: Slots, source: float, text: str | None) -> float:
    return _rewritten(source, text, -spoken_seconds(slots["text"]))


def _replace_seconds(slots: Slots, source: float, text: str | None) -> float:
    return _rewritten(source, text, spoken_seconds(slots["new"]) - spoken_seconds(slots["old"]))


def _rewritten(source: float, transcript: str | None, change: float) -> float:
    """The source scaled by the ratio of spoken times when its words are known, else lengthened by the change."""
    spoken = spoken_seconds(transcript) if transcript else 0.0
    seconds = source * (spoken + change) / spoken if spoken else source + change
    return max(MIN_SECONDS, seconds)


def _sound_seconds(slots: Slots, source: float, _text: str | None) -> float:
    return max(MIN_SECONDS, source + sound_delta(slots["sound"], added="where" in slots))


def _add_sound_english(slots: Slots) -> str:
    sound = _quoted(slots["sound"])
    if slots["anchor"]:
        return f"Add a {sound} before '{_quoted(slots['anchor'])}'"
    return f"Add a {sound} at the {slots['where']} of the speech."


def _add_sound_chinese(slots: Slots) -> str:
    if slots["anchor"]:
        return _add_sound_english(slots)
    return f"在语音{'开头' if slots['where'] == 'beginning' else '结尾'}增加{_quoted(slots['sound'])}。"


def _insert_chinese(slots: Slots) -> str:
    side = "前面" if slots["where"] == "before" else "后面"
    return f"在‘{_quoted(slots['anchor'])}’{side}加上‘{_quoted(slots['text'])}’"


def _remove_chinese(slots: Slots) -> str:
    return f"删掉‘{_quoted(slots['text'])}’" if not slots["anchor"] else _remove_english(slots)


def _remove_english(slots: Slots) -> str:
    return f"Remove '{_quoted(slots['text'])}'{_place_english(slots)}."


_SOUND = Slot(name="sound", help="a nonverbal sound, such as breath, laugh, cough")
_SIDE = ("before", "after")
_SAME_LENGTH = "preserve everything else, and output audio of the same length."

_ALL = (
    EditTask(
        name="replace",
        help="replace spoken words by others",
        slots=(Slot(name="old", help="the words as spoken"), Slot(name="new", help="the words instead")),
        english="Replace '{old}' with '{new}'.",
        chinese="把‘{old}’改成‘{new}’",
        seconds=_replace_seconds,
    ),
    EditTask(
        name="insert",
        help="add spoken words",
        slots=(
            Slot(name="text", help="the words to add"),
            Slot(name="anchor", help="spoken words they go next to"),
            Slot(name="where", help="side of the anchor", choices=_SIDE, default="after"),
        ),
        english=lambda slots: f"Add '{_quoted(slots['text'])}'{_place_english(slots)}.",
        chinese=_insert_chinese,
        seconds=_insert_seconds,
    ),
    EditTask(
        name="remove",
        help="remove spoken words",
        slots=(
            Slot(name="text", help="the words to remove"),
            Slot(name="anchor", help="spoken words next to the place, if they occur twice", default=""),
            Slot(name="where", help="side of the anchor", choices=_SIDE, default="after"),
        ),
        english=_remove_english,
        chinese=_remove_chinese,
        seconds=_remove_seconds,
    ),
    EditTask(
        name="lyrics",
        help="change sung words (voice alone, no music)",
        slots=(Slot(name="old", help="the words as sung"), Slot(name="new", help="the words instead")),
        english='Change "{old}" to "{new}" in the vocal recording.',
        chinese="把这段歌词中的“{old}”改成“{new}”。",
    ),
    EditTask(
        name="pitch",
        help="raise or lower the pitch",
        slots=(
            Slot(name="direction", help="up or down", choices=("up", "down")),
            Slot(name="semitones", help="how far", choices=("1", "2", "3")),
        ),
        english=lambda s: f"{'Raise' if s['direction'] == 'up' else 'Lower'} the pitch by {s['semitones']} semitones.",
        chinese=lambda s: f"将音调{'升高' if s['direction'] == 'up' else '降低'}{s['semitones']}个半音。",
    ),
    EditTask(
        name="speed",
        help="speak faster or slower",
        slots=(Slot(name="factor", help="times the speed", choices=("0.5", "0.75", "1.25", "1.5", "2.0")),),
        english="Adjust the speech speed to {factor}x.",
        chinese="将语速调整为{factor}倍。",
        seconds=lambda slots, source, _text: source / float(slots["factor"]),
    ),
    EditTask(
        name="volume",
        help="make it louder or softer",
        slots=(
            Slot(name="direction", help="up or down", choices=("up", "down")),
            Slot(name="decibels", help="by how much", choices=("5", "10", "15")),
        ),
        english=lambda s: f"{'Increase' if s['direction'] == 'up' else 'Decrease'} the volume by {s['decibels']} dB.",
        chinese=lambda s: f"将音量{'升高' if s['direction'] == 'up' else '降低'}{s['decibels']}分贝。",
    ),
    EditTask(
        name="emotion",
        help="change the emotion",
        slots=(Slot(name="emotion", help="the new emotion", choices=tuple(EMOTIONS)),),
        english="Change the emotion to {emotion}.",
        chinese=lambda s: f"将情感转变为{EMOTIONS[s['emotion']]}。",
        seconds=lambda slots, source, _text: source * EMOTION_FACTORS.get(slots["emotion"], OTHER_EMOTION_FACTOR),
    ),
    EditTask(
        name="timbre",
        help="speak the same words with another voice",
        slots=(Slot(name="description", help="the voice in words"),),
        english='Keep the spoken content unchanged and change the timbre to: "{description}".',
        chinese="请将这段音频的音色修改为符合以下描述的声音：“{description}”。",
    ),
    EditTask(
        name="deaccent",
        help="remove a regional accent",
        english="Remove the regional accent while preserving the speaker's voice and content.",
        chinese="请去掉这段语音里的方言口音，保持说话人音色一致。",
    ),
    EditTask(
        name="remove_sound",
        help="remove a nonverbal sound everywhere",
        slots=(_SOUND,),
        english="Remove all {sound} from the audio.",
        chinese="删除音频中所有的{sound}。",
        seconds=_sound_seconds,
    ),
    EditTask(
        name="add_sound",
        help="add a nonverbal sound",
        slots=(
            _SOUND,
            Slot(name="where", help="where in the speech", choices=("beginning", "end"), default="beginning"),
            Slot(name="anchor", help="instead: spoken words it comes before", default=""),
        ),
        english=_add_sound_english,
        chinese=_add_sound_chinese,
        seconds=_sound_seconds,
    ),
    EditTask(
        name="whisper",
        help="turn speech into a whisper",
        english="Convert this speech into a soft whisper while preserving the speaker and content.",
        chinese="用小声耳语的方式把这段话说出来。",
    ),
    EditTask(
        name="unwhisper",
        help="turn a whisper into speech",
        english="Convert this whispered speech into a normal speaking voice while preserving the speaker and content.",
        chinese="把这段耳语转换成正常说话的声音。",
    ),
    EditTask(
        name="denoise",
        help="remove background noise only",
        english=f"Remove only the background noise, {_SAME_LENGTH}",
        chinese="请只去除背景噪声，保留其他内容，输出等长结果。",
    ),
    EditTask(
        name="dereverb",
        help="remove room reverberation only",
        english=f"Remove only the room reverberation, {_SAME_LENGTH}",
    ),
    EditTask(
        name="enhance",
        help="remove noise and reverberation",
        english="Preserve all speakers, remove noise and reverberation, and output clean speech of the same length.",
    ),
    EditTask(
        name="restore",
        help="repair damaged speech",
        slots=(Slot(name="defect", help="what is wrong with it", choices=DEFECTS),),
        english="Repair the {defect} and restore natural, clear speech.",
    ),
    EditTask(
        name="speaker",
        help="keep one speaker, by who talks first",
        slots=(Slot(name="order", help="which one starts talking", choices=ORDERS, default="first"),),
        english="Keep only the {order} speaker to start talking and remove all other speakers.",
        chinese=lambda s: f"只保留第{'一二三四五'[ORDERS.index(s['order'])]}个开始说话的人，去掉其余说话人。",
    ),
    EditTask(
        name="speaker_saying",
        help="keep one speaker, by what is said",
        slots=(Slot(name="content", help="words only that speaker says"),),
        english='Keep only the speaker who says "{content}" and remove all other speakers.',
        chinese="请只保留说“{content}”的人，去掉其他说话人。",
    ),
    EditTask(
        name="singing",
        help="keep the singing voice only",
        english="Keep only the singing voice and remove everything else.",
        chinese="请只保留歌声，其余声音都去掉。",
    ),
    EditTask(
        name="voices",
        help="keep all human voices only",
        english="Keep all human voices, including speech and singing, and remove everything else.",
        chinese="请保留所有人声，包括说话和歌唱，其余声音都去掉。",
    ),
)

TASKS: Mapping[str, EditTask] = {task.name: task for task in _ALL}
"""Every editing task by name."""

DEFAULT_DESCRIPTION = "A clear, natural adult voice, speaking calmly"


def task_named(name: str) -> EditTask:
    """The task. Raises InvalidRequest listing all when there is none of that name."""
    if name not in TASKS:
        raise InvalidRequest(f"no editing task {name!r}; there are: {', '.join(sorted(TASKS))}", param="task")
    return TASKS[name]


def same_voice_instruction(text: str) -> str:
    """Zero-shot speech; the same wording in both languages."""
    return f'Say the following with the same voice: "{_quoted(text)}"'


def described_voice_instruction(text: str, description: str, language: str | None = None) -> str:
    """Speech in a voice given in words."""
    if (language or language_of(text)) == "zh":
        return f'请基于下面的描述: "{_quoted(description)}",生成语音内容"{_quoted(text)}"。'
    return (
        f'Generate speech based on the following description: "{_quoted(description)}". '
        f'The content to speak is: "{_quoted(text)}".'
    )
