//! Assembles a filter's instructions; a condition is a block that is jumped over.

use crate::sys::security::{Instruction, Token};

/// Longest conditional jump in instructions.
const NEAR: usize = u8::MAX as usize;

/// A field of the data that the kernel passes to a filter.
#[derive(Clone, Copy)]
pub(super) enum Field {
    Number,
    Arch,
    Low(u8),
    High(u8),
}

#[derive(Clone, Copy)]
pub(super) enum Test {
    Equal(u32),
    AtLeast(u32),
    AnyBit(u32),
}

/// Appends instructions. Jumps are relative, so blocks can be assembled separately and joined.
#[derive(Default)]
pub(super) struct Assembler(pub(super) Vec<Instruction>);

impl Assembler {
    fn push(&mut self, code: u16, k: u32) {
        self.0.push(Instruction { code, jt: 0, jf: 0, k });
    }

    pub(super) fn load(&mut self, field: Field) {
        let offset = match field {
            Field::Number => 0,
            Field::Arch => 4,
            Field::Low(index) => 16 + 8 * u32::from(index),
            Field::High(index) => 20 + 8 * u32::from(index),
        };
        self.push(0x20, offset);
    }

    /// Clears all other bits of the loaded value.
    pub(super) fn mask(&mut self, bits: u32) {
        self.push(0x54, bits);
    }

    fn answer(&mut self, value: u32) {
        self.push(0x06, value);
    }

    pub(super) fn allow(&mut self) {
        self.answer(libc::SECCOMP_RET_ALLOW);
    }

    pub(super) fn fail(&mut self, errno: i32) {
        self.answer(libc::SECCOMP_RET_ERRNO | errno as u32 & 0xFFFF);
    }

    pub(super) fn kill(&mut self) {
        self.answer(libc::SECCOMP_RET_KILL_PROCESS);
    }

    /// A block for when the loaded value passes the test.
    pub(super) fn when(&mut self, test: Test, block: impl FnOnce(&mut Self)) {
        self.block(test, true, block);
    }

    /// A block for when the loaded value fails the test.
    pub(super) fn unless(&mut self, test: Test, block: impl FnOnce(&mut Self)) {
        self.block(test, false, block);
    }

    fn block(&mut self, test: Test, enter_if: bool, block: impl FnOnce(&mut Self)) {
        let (code, k) = match test {
            Test::Equal(value) => (0x15, value),
            Test::AtLeast(value) => (0x35, value),
            Test::AnyBit(mask) => (0x45, mask),
        };
        let mut body = Self::default();
        block(&mut body);
        // If a block is too long for a conditional jump, an unconditional jump skips it, and the condition skips that
        // jump.
        let (enter, over) = u8::try_from(body.0.len()).map_or((1, 0), |length| (0, length));
        let (jt, jf) = if enter_if { (enter, over) } else { (over, enter) };
        self.0.push(Instruction { code, jt, jf, k });
        if enter == 1 {
            self.push(0x05, u32::try_from(body.0.len()).unwrap_or(u32::MAX));
        }
        self.0.append(&mut body.0);
    }

    /// A block for one call; the call is allowed unless the block decides otherwise.
    pub(super) fn call(&mut self, number: libc::c_long, block: impl FnOnce(&mut Self)) {
        self.when(Test::Equal(number as u32), |code| {
            block(code);
            code.allow();
        });
    }

    /// One block for several calls; they are allowed unless the block decides otherwise.
    pub(super) fn calls(&mut self, numbers: &[libc::c_long], block: impl Fn(&mut Self)) {
        for some in numbers.chunks(NEAR) {
            let Some((last, others)) = some.split_last() else { continue };
            for (left, number) in (0..others.len()).rev().zip(others) {
                // Jump over the remaining comparisons, including `last`, into the block.
                let jt = u8::try_from(left + 1).unwrap_or(u8::MAX);
                self.0.push(Instruction { code: 0x15, jt, jf: 0, k: *number as u32 });
            }
            self.call(*last, &block);
        }
    }

    /// Allows the call if it carries the token. The whole token is compared before any branch: with an early exit, the
    /// time of a wrong guess would reveal how much of it was right.
    pub(super) fn guest_only(&mut self, token: Token, errno: i32) {
        let [first, second] = token.0;
        let halves = [
            (Field::Low(4), first as u32),
            (Field::High(4), (first >> 32) as u32),
            (Field::Low(5), second as u32),
            (Field::High(5), (second >> 32) as u32),
        ];
        for (index, (field, expected)) in halves.into_iter().enumerate() {
            self.load(field);
            self.push(0xA4, expected); // A ^= expected
            if index > 0 {
                self.push(0x4C, 0); // A |= X
            }
            self.push(0x07, 0); // X = A
        }
        self.unless(Test::Equal(0), |code| code.fail(errno));
        self.allow();
    }
}
